/* nm-box kvm: tests whether KVM runs guests on this machine, and prints the result as JSON. That /dev/kvm can
 * be opened does not suffice: the kernel may emulate instructions, or fail at instructions that every guest
 * uses. So this runs some instructions of each kind in guests of one page, each in a child process.
 *
 * A guest that does not end uses CPU time, so its limit is one of CPU time, which a busy machine does not
 * exceed. A longer limit of wall time ends a guest that blocks. "nm-box kvm endless" runs only a guest that
 * never ends, to test the limit. */
#define _GNU_SOURCE
#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/kvm.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    LOOK_MS = 20,        /* between two checks of the CPU time of a child */
    CPU_LIMIT_MS = 5000, /* a loop that traps on each instruction needs 2000 */
    WALL_LIMIT_MS = 30000,
    MEMORY = 2 << 20,
    CODE = 0x1000,
    TABLES = 0x2000,
    /* Many, since entering and leaving a guest takes milliseconds if KVM runs in a guest itself. */
    LOOPS = 400000,
    TRIES = 5,
    TRIES_NS = 400000000, /* of CPU time for all tries together */
    PORT = 0x3f8,
    BYTE = 42,
};
/* Maximum nanoseconds for one instruction of a loop. A processor needs less than 1; if each instruction
 * traps, about 1000. */
static const double slowest_ns = 100;

struct step {
    const char *name;
    bool long_mode;
    unsigned loops;
    unsigned char code[16]; /* between the loop and the end */
    size_t size;
};

static const struct step steps[] = {
    {"real mode", false, 1, {0}, 0},
    {"long mode", true, 1, {0}, 0},
    {"SSE", true, 1, {0x0f, 0x57, 0xc0}, 3},       /* xorps xmm0, xmm0 */
    {"x87", true, 1, {0xd9, 0xe8, 0xdd, 0xd8}, 4}, /* fld1; fstp st0 */
    {"cmpxchg16b", true, 1, {0xf0, 0x48, 0x0f, 0xc7, 0x0c, 0x25, 0x00, 0x50, 0x00, 0x00}, 10}, /* [0x5000] */
    {"a loop", true, LOOPS, {0}, 0},
};

static const struct step endless = {"an endless loop", false, 1, {0xeb, 0xfe}, 2}; /* jmp $ */

/* mov ecx, loops; 1: dec ecx; jnz 1b; the code; mov dx, PORT; mov al, BYTE; out dx, al; hlt */
static void write_code(unsigned char *at, const struct step *step) {
    static const unsigned char real_end[] = {0xba, 0xf8, 0x03, 0xb0, BYTE, 0xee, 0xf4};
    static const unsigned char long_end[] = {0xba, 0xf8, 0x03, 0x00, 0x00, 0xb0, BYTE, 0xee, 0xf4};
    static const unsigned char real_loop[] = {0x66, 0x49, 0x75, 0xfc}, long_loop[] = {0xff, 0xc9, 0x75, 0xfc};
    if (!step->long_mode)
        *at++ = 0x66;
    *at++ = 0xb9;
    memcpy(at, &step->loops, sizeof step->loops);
    at = mempcpy(at + sizeof step->loops, step->long_mode ? long_loop : real_loop, 4);
    at = mempcpy(at, step->code, step->size);
    memcpy(at, step->long_mode ? long_end : real_end, step->long_mode ? sizeof long_end : sizeof real_end);
}

static struct kvm_segment segment(unsigned char type, unsigned short selector, bool code) {
    return (struct kvm_segment){.limit = 0xffffffff,
                                .selector = selector,
                                .type = type,
                                .present = 1,
                                .db = !code,
                                .s = 1,
                                .l = code,
                                .g = 1};
}

static void enter_long_mode(unsigned char *memory, struct kvm_sregs *sregs) {
    const uint64_t tables[] = {TABLES + 0x1007, TABLES + 0x2007, 0x87}; /* three levels, one page of 2 MiB */
    for (int i = 0; i < 3; i++)
        memcpy(memory + TABLES + 0x1000 * i, &tables[i], sizeof tables[i]);
    sregs->cs = segment(11, 8, true);
    sregs->ds = sregs->es = sregs->fs = sregs->gs = sregs->ss = segment(3, 16, false);
    sregs->cr0 = 0x80050033;
    sregs->cr3 = TABLES;
    sregs->cr4 = 0x620; /* PAE, OSFXSR, OSXMMEXCPT */
    sregs->efer = 0x500;
}

static const char *exit_name(unsigned reason) {
    static const char *const names[] = {
        [KVM_EXIT_UNKNOWN] = "an unknown exit",     [KVM_EXIT_EXCEPTION] = "an exception",
        [KVM_EXIT_MMIO] = "an access to no memory", [KVM_EXIT_SHUTDOWN] = "a shutdown (triple fault)",
        [KVM_EXIT_FAIL_ENTRY] = "a failed entry",   [KVM_EXIT_INTERNAL_ERROR] = "KVM's internal error"};
    return reason < sizeof names / sizeof *names && names[reason] != NULL ? names[reason] : "another exit";
}

static _Noreturn void tell(int fd, const char *text) {
    if (write(fd, text, strlen(text)) < 0)
        _exit(1);
    _exit(0);
}

static _Noreturn void tell_error(int fd, const char *what) {
    char text[128];
    snprintf(text, sizeof text, "%s: %s", what, strerror(errno));
    tell(fd, text);
}

static uint64_t cpu_ns(clockid_t clock) {
    struct timespec used = {0, 0};
    clock_gettime(clock, &used); /* fails when the process has ended: then its answer is there */
    return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

/* Run a step in a child process. Write "ok NANOSECONDS", the CPU time of one instruction, or an error to
 * `out`. */
static _Noreturn void run_step(int out, const struct step *step) {
    int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
    if (kvm < 0)
        tell_error(out, "/dev/kvm");
    if (ioctl(kvm, KVM_GET_API_VERSION, 0) != KVM_API_VERSION)
        tell(out, "KVM of another interface than 12");
    int vm = ioctl(kvm, KVM_CREATE_VM, 0), run_size = ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
    if (vm < 0)
        tell_error(out, "a virtual machine cannot be made");
    ioctl(vm, KVM_SET_TSS_ADDR, 0xfffbd000ul);
    unsigned char *memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        tell_error(out, "memory");
    write_code(memory + CODE, step);
    struct kvm_userspace_memory_region region = {.memory_size = MEMORY, .userspace_addr = (uintptr_t)memory};
    int vcpu = ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region) == 0 ? ioctl(vm, KVM_CREATE_VCPU, 0) : -1;
    struct kvm_sregs sregs;
    if (vcpu < 0 || ioctl(vcpu, KVM_GET_SREGS, &sregs) != 0)
        tell_error(out, "a vCPU cannot be made");
    struct kvm_run *run = mmap(NULL, (size_t)run_size, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
    if (step->long_mode)
        enter_long_mode(memory, &sregs);
    else
        sregs.cs.base = sregs.cs.selector = 0;
    struct kvm_regs regs = {.rip = CODE, .rflags = 2, .rsp = 0x8000};
    if (run == MAP_FAILED || ioctl(vcpu, KVM_SET_SREGS, &sregs) != 0 || ioctl(vcpu, KVM_SET_REGS, &regs) != 0)
        tell_error(out, "registers");
    uint64_t begin = cpu_ns(CLOCK_THREAD_CPUTIME_ID); /* includes the time in the guest */
    if (ioctl(vcpu, KVM_RUN, 0) != 0)
        tell_error(out, "it does not run");
    if (run->exit_reason != KVM_EXIT_IO)
        tell(out, exit_name(run->exit_reason));
    double each = (double)(cpu_ns(CLOCK_THREAD_CPUTIME_ID) - begin) / (2.0 * step->loops);
    if (run->io.port != PORT || *((unsigned char *)run + run->io.data_offset) != BYTE)
        tell(out, "it computed something else");
    char text[64];
    snprintf(text, sizeof text, "ok %.2f", each);
    tell(out, text);
}

/* Wait for the answer of a child. Return its size, or -1 with an error message in `text`. */
static ssize_t await_answer(int line, pid_t child, char *text, size_t room) {
    struct pollfd asked = {.fd = line, .events = POLLIN};
    clockid_t clock;
    bool has_clock = clock_getcpuclockid(child, &clock) == 0;
    uint64_t begin = now_ns();
    for (;;) {
        if (poll(&asked, 1, LOOK_MS) > 0)
            return read(line, text, room - 1);
        if (has_clock && (double)cpu_ns(clock) > 1e6 * CPU_LIMIT_MS) {
            snprintf(text, room, "it hangs: no end after %d s of CPU time", CPU_LIMIT_MS / 1000);
            return -1;
        }
        if ((double)(now_ns() - begin) > 1e6 * WALL_LIMIT_MS) {
            snprintf(text, room, "it hangs: no answer within %d s", WALL_LIMIT_MS / 1000);
            return -1;
        }
    }
}

/* Run a step in a child. `text` gets its answer, or why there is none. */
static void ask(const struct step *step, char *text, size_t room) {
    int line[2];
    if (pipe2(line, O_CLOEXEC) != 0)
        die("pipe", step->name);
    pid_t child = fork();
    if (child < 0)
        die("fork", step->name);
    if (child == 0) {
        die_with_parent();
        run_step(line[1], step);
    }
    close(line[1]);
    ssize_t size = await_answer(line[0], child, text, room);
    int status = 0;
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    close(line[0]);
    if (size > 0)
        text[size] = '\0';
    else if (size == 0)
        snprintf(text, room, WIFSIGNALED(status) ? "it was killed by signal %d" : "it ended with %d",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

/* Return whether a step ends as it should. *each: nanoseconds of CPU time for an instruction. A slow loop is
 * repeated: on a virtual machine, CPU time includes time in which the hypervisor took the CPU away. */
static bool run_fastest(const struct step *step, char *text, size_t room, double *each) {
    double spent = 0;
    for (int i = 0; i < (step->loops == LOOPS ? TRIES : 1); i++) {
        ask(step, text, room);
        if (strncmp(text, "ok ", 3) != 0)
            return false;
        double ns = strtod(text + 3, NULL);
        if (i == 0 || ns < *each)
            *each = ns;
        spent += 2.0 * step->loops * ns;
        if (*each <= slowest_ns || spent > TRIES_NS)
            break;
    }
    return true;
}

static const char *remedy(bool opens) {
    if (access("/dev/kvm", F_OK) != 0)
        return "modprobe kvm_intel or kvm_amd, with virtualisation switched on in the firmware";
    return opens ? "a machine whose KVM is not itself emulated; guests run by TCG here"
                 : "add this user to the group kvm, or run as root";
}

/* Return the frequency of the time stamp counter in kHz, also if it is emulated. */
static uint64_t tsc_khz(void) {
#ifdef __x86_64__
    uint64_t begin = now_ns(), first = __builtin_ia32_rdtsc(), end;
    while ((end = now_ns()) - begin < 10000000)
        continue;
    return (__builtin_ia32_rdtsc() - first) * 1000000 / (end - begin);
#else
    return 0;
#endif
}

int kvm_main(int argc, char **argv) {
    bool only_endless = argc > 1 && strcmp(argv[1], "endless") == 0;
    const struct step *run = only_endless ? &endless : steps;
    size_t count = only_endless ? 1 : sizeof steps / sizeof *steps;
    char text[160], reason[256] = "";
    double each = 0;
    bool works = true;
    int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
    printf("{\"steps\": [");
    for (size_t i = 0; works && i < count; i++) {
        works = run_fastest(&run[i], text, sizeof text, &each);
        if (works && run[i].loops == LOOPS && each > slowest_ns) {
            works = false;
            snprintf(text, sizeof text, "%.0f ns for an instruction: it is emulated itself", each);
        }
        if (!works)
            snprintf(reason, sizeof reason, "%s (%s)", text, fd < 0 ? "it does not open" : run[i].name);
        printf("%s{\"step\": \"%s\", \"answer\": \"%s\"}", i > 0 ? ", " : "", run[i].name, text);
    }
    printf("], \"works\": %s, \"reason\": \"%s\", \"remedy\": \"%s\"", works ? "true" : "false", reason,
           works ? "" : remedy(fd >= 0));
    if (works)
        printf(", \"nanoseconds\": %.2f", each);
    printf(", \"tsc_khz\": %" PRIu64 "}\n", tsc_khz());
    return 0;
}
