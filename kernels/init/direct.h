/* System calls and a program entry that do without the C library, on x86-64. There glibc's start-up executes
 * about 80 CPUID instructions. In a virtual machine each of them exits to the hypervisor: together they took
 * 0.7 ms where this was measured, as long as all other steps of the start of an instance. On other
 * architectures the C library is used. */
#ifndef NM_DIRECT_H
#define NM_DIRECT_H

#include <sys/syscall.h>

#ifdef NM_FREESTANDING

/* Return the result of a system call, or minus the errno. */
static inline long direct6(long call, long first, long second, long third, long fourth, long fifth,
                           long sixth) {
    long result;
    register long r10 __asm__("r10") = fourth;
    register long r8 __asm__("r8") = fifth;
    register long r9 __asm__("r9") = sixth;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(call), "D"(first), "S"(second), "d"(third), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

/* The program's entry: calls run(argc, argv) and exits with its result. The kernel leaves argc and argv on
 * the stack, which must be aligned to 16 bytes at a call. */
#define NM_ENTRY(run)                                                                                        \
    __asm__(".text\n.globl _start\n_start:\n\txor %ebp, %ebp\n\tmov %rsp, %rdi\n\tand $-16, %rsp\n"          \
            "\tcall nm_entry\n");                                                                            \
    __attribute__((used)) _Noreturn void nm_entry(long *stack);                                              \
    void nm_entry(long *stack) {                                                                             \
        for (int status = run((int)stack[0], (char **)(stack + 1));;)                                        \
            direct(SYS_exit_group, status, 0, 0, 0);                                                         \
    }

#else

#include <errno.h>
#include <unistd.h>

static inline long direct6(long call, long first, long second, long third, long fourth, long fifth,
                           long sixth) {
    long result = syscall(call, first, second, third, fourth, fifth, sixth);
    return result < 0 ? -errno : result;
}

#define NM_ENTRY(run)                                                                                        \
    int main(int argc, char **argv) {                                                                        \
        return run(argc, argv);                                                                              \
    }

#endif

static inline long direct(long call, long first, long second, long third, long fourth) {
    return direct6(call, first, second, third, fourth, 0, 0);
}

#endif
