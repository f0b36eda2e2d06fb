/* nm-dgemm CPU...: measures the peak of double-precision matrix multiplication on all these CPUs at the same
 * time, with one process on each, by the libblas.so.3 that the loader finds. It prints one JSON object: the
 * path of the library, OpenBLAS's name for its kernels (null for another library), and the best seconds by
 * size and CPU. Exit status: 0; 2 for wrong usage; 3 if there is no BLAS or no memory, if a product is wrong,
 * or if a process was killed. Errors are reported as in fail.h, since a BLAS may write to standard error too.
 */
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fail.h"

enum { WRONG_USE = 2, FAILED = 3, CPUS_MAX = 1024, SIZES = 4, NAME = 512, CALLS_LEAST = 3 };

static const int sizes[SIZES] = {384, 768, 1152, 1536};
/* If a product takes longer than this many seconds, larger sizes are not tried: the peak has been reached. */
static const double SLOW = 0.2;
/* Seconds to repeat the product of one size: long enough for the resolution of the clock, and for the
 * frequency of the CPU to settle. */
static const double SECONDS_PER_SIZE = 0.3;

typedef void (*Dgemm)(const char *, const char *, const int *, const int *, const int *, const double *,
                      const double *, const int *, const double *, const int *, const double *, double *,
                      const int *);

/* Shared by all processes; library and core are written by the first. */
typedef struct {
    pthread_barrier_t barrier;
    char library[NAME], core[NAME];
    double best[SIZES][CPUS_MAX];
} Shared;

static void leave(void) {
    _exit(FAILED);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set))
        fail("sched_setaffinity: %s", strerror(errno));
}

static double *matrix(int n, unsigned seed) {
    double *m = NULL;
    if (posix_memalign((void **)&m, 64, sizeof *m * (size_t)n * (size_t)n))
        fail("out of memory");
    /* No zeros and no ones: trivial products draw less power, which lets the CPU run at a higher frequency.
     */
    for (size_t i = 0; i < (size_t)n * (size_t)n; i++) {
        seed = seed * 1664525u + 1013904223u;
        m[i] = (double)(seed >> 8) / (double)(1 << 24) - 0.5;
    }
    return m;
}

/* Check the last element of the product against its sum, within the error of n roundings of values below 1/4.
 */
static void check(const double *a, const double *b, const double *c, int n) {
    double sum = 0;
    for (int k = 0; k < n; k++)
        sum += a[(size_t)k * (size_t)n + (size_t)n - 1] * b[(size_t)(n - 1) * (size_t)n + (size_t)k];
    double found = c[(size_t)n * (size_t)n - 1];
    if (!(fabs(found - sum) <= 1e-12 * n))
        fail("wrong product of order %d: %g, not %g", n, found, sum);
}

static double best_of(Dgemm dgemm, int n) {
    const double one = 1, zero = 0;
    double *a = matrix(n, 1), *b = matrix(n, 2), *c = matrix(n, 3);
    double best = INFINITY, begin = now();
    for (int calls = 0; calls < CALLS_LEAST || now() - begin < SECONDS_PER_SIZE; calls++) {
        double start = now();
        dgemm("N", "N", &n, &n, &n, &one, a, &n, b, &n, &zero, c, &n);
        double seconds = now() - start;
        best = seconds < best ? seconds : best;
    }
    check(a, b, c, n);
    free(a);
    free(b);
    free(c);
    return best;
}

static void copy_name(char *to, const char *from) {
    size_t at = 0;
    /* Characters that would need an escape in JSON are left out. */
    for (; from && *from && at < NAME - 1; from++)
        if (*from != '"' && *from != '\\' && (unsigned char)*from >= ' ')
            to[at++] = *from;
    to[at] = 0;
}

static void __attribute__((noreturn)) measure(Shared *shared, int at, int cpu) {
    fail_process("CPU %d", cpu);
    pin(cpu);
    void *library = dlopen("libblas.so.3", RTLD_NOW);
    if (!library)
        fail("%s", dlerror());
    Dgemm dgemm;
    *(void **)&dgemm = dlsym(library, "dgemm_");
    if (!dgemm)
        fail("%s", dlerror());
    if (at == 0) {
        Dl_info info;
        if (dladdr(*(void **)&dgemm, &info))
            copy_name(shared->library, info.dli_fname);
        char *(*core)(void);
        *(void **)&core = dlsym(library, "openblas_get_corename");
        copy_name(shared->core, core ? core() : "");
    }
    for (int i = 0; i < SIZES; i++) {
        pthread_barrier_wait(&shared->barrier);
        if (i > 0 && shared->best[i - 1][0] > SLOW)
            break; /* all processes decide by the result of the first one, written before the barrier */
        shared->best[i][at] = best_of(dgemm, sizes[i]);
    }
    _exit(0);
}

static void print(const Shared *shared, int count, char **cpus) {
    printf("{\"library\":\"%s\",\"core\":", shared->library);
    printf(shared->core[0] ? "\"%s\"" : "null", shared->core);
    printf(",\"cpus\":[");
    for (int i = 0; i < count; i++)
        printf("%s%d", i ? "," : "", atoi(cpus[i]));
    printf("],\"sizes\":[");
    for (int s = 0; s < SIZES && shared->best[s][0] > 0; s++) {
        printf("%s{\"n\":%d,\"seconds\":[", s ? "," : "", sizes[s]);
        for (int i = 0; i < count; i++)
            printf("%s%.9g", i ? "," : "", shared->best[s][i]);
        printf("]}");
    }
    printf("]}\n");
}

/* Wait for all processes and end the others after the first failure, since they wait for it at the barrier.
 * A process reports its own errors, except for its death by a signal and an exit by a library. */
static bool await_all(pid_t *children, int cpus, char **names) {
    bool failed = false;
    int status;
    for (pid_t ended; (ended = wait(&status)) > 0;) {
        bool well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        for (int i = 0; i < cpus; i++) {
            if (children[i] == ended) {
                children[i] = 0;
                fail_process("CPU %s", names[i]);
            }
        }
        if (well || failed)
            continue;
        failed = true;
        if (WIFSIGNALED(status))
            fail_report("killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
        else
            fail_report("ended with status %d", WEXITSTATUS(status));
        for (int i = 0; i < cpus; i++)
            if (children[i])
                kill(children[i], SIGKILL);
    }
    return !failed;
}

int main(int count, char **arguments) {
    int cpus = count - 1;
    fail_leave(leave);
    for (int i = 1; i < count; i++)
        if (!arguments[i][0] || strspn(arguments[i], "0123456789") != strlen(arguments[i]))
            cpus = 0;
    if (cpus < 1 || cpus > CPUS_MAX) {
        fail_report("usage: nm-dgemm CPU...");
        return WRONG_USE;
    }
    Shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        fail("out of memory");
    pthread_barrierattr_t across;
    pthread_barrierattr_init(&across);
    pthread_barrierattr_setpshared(&across, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->barrier, &across, (unsigned)cpus);
    static pid_t children[CPUS_MAX];
    pid_t parent = getpid();
    for (int i = 0; i < cpus; i++) {
        children[i] = fork();
        if (children[i] < 0)
            fail("fork: %s", strerror(errno));
        if (children[i] == 0) {
            /* The child ends if this process is killed. */
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent)
                _exit(FAILED);
            measure(shared, i, atoi(arguments[1 + i]));
        }
    }
    if (!await_all(children, cpus, arguments + 1))
        return FAILED;
    print(shared, cpus, arguments + 1);
    return 0;
}
