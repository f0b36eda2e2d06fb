/* What a program inherits from the caller of nearmetal, where an instance or nearmetal itself has changed it.
 */
#ifndef NEARMETAL_CALLER_H
#define NEARMETAL_CALLER_H

/* Take over "UMASK NICE OOM IGNORED BLOCKED SOFT:HARD...": octal umask, nice value, oom_score_adj, sets of
   signals in hexadecimal, and the limits in the kernel's order. What this process may not set stays as it
   is; of a limit that it may not raise, the soft one becomes as high as it may. */
void caller_take(const char *text);
/* Set the signals of caller_take() in a child of vfork(), right before it executes the program. */
void caller_set_signals(void);

#endif
