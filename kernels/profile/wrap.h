/* Lists of the parameters and arguments a1, a2, ... of a wrapper, for each number of them. */
#ifndef NEARMETAL_WRAP_H
#define NEARMETAL_WRAP_H

#define EXPORT __attribute__((visibility("default")))

/* (int, MPI_Comm) -> int a1, MPI_Comm a2 */
#define PARAMETERS_1(t1) t1 a1
#define PARAMETERS_2(t1, t2) t1 a1, t2 a2
#define PARAMETERS_3(t1, t2, t3) t1 a1, t2 a2, t3 a3
#define PARAMETERS_4(t1, t2, t3, t4) t1 a1, t2 a2, t3 a3, t4 a4
#define PARAMETERS_5(t1, t2, t3, t4, t5) t1 a1, t2 a2, t3 a3, t4 a4, t5 a5
#define PARAMETERS_6(t1, t2, t3, t4, t5, t6) t1 a1, t2 a2, t3 a3, t4 a4, t5 a5, t6 a6
#define PARAMETERS_7(t1, t2, t3, t4, t5, t6, t7) t1 a1, t2 a2, t3 a3, t4 a4, t5 a5, t6 a6, t7 a7
#define PARAMETERS_8(t1, t2, t3, t4, t5, t6, t7, t8) t1 a1, t2 a2, t3 a3, t4 a4, t5 a5, t6 a6, t7 a7, t8 a8
#define PARAMETERS_9(t1, t2, t3, t4, t5, t6, t7, t8, t9)                                                     \
    t1 a1, t2 a2, t3 a3, t4 a4, t5 a5, t6 a6, t7 a7, t8 a8, t9 a9
#define PARAMETERS_10(t1, t2, t3, t4, t5, t6, t7, t8, t9, t10)                                               \
    t1 a1, t2 a2, t3 a3, t4 a4, t5 a5, t6 a6, t7 a7, t8 a8, t9 a9, t10 a10
#define PARAMETERS_11(t1, t2, t3, t4, t5, t6, t7, t8, t9, t10, t11)                                          \
    t1 a1, t2 a2, t3 a3, t4 a4, t5 a5, t6 a6, t7 a7, t8 a8, t9 a9, t10 a10, t11 a11
#define PARAMETERS_12(t1, t2, t3, t4, t5, t6, t7, t8, t9, t10, t11, t12)                                     \
    t1 a1, t2 a2, t3 a3, t4 a4, t5 a5, t6 a6, t7 a7, t8 a8, t9 a9, t10 a10, t11 a11, t12 a12
#define PARAMETERS_13(t1, t2, t3, t4, t5, t6, t7, t8, t9, t10, t11, t12, t13)                                \
    t1 a1, t2 a2, t3 a3, t4 a4, t5 a5, t6 a6, t7 a7, t8 a8, t9 a9, t10 a10, t11 a11, t12 a12, t13 a13

/* The same for Fortran, which passes all arguments by address. */
#define ADDRESSES_1 void *a1
#define ADDRESSES_2 void *a1, void *a2
#define ADDRESSES_3 void *a1, void *a2, void *a3
#define ADDRESSES_4 void *a1, void *a2, void *a3, void *a4
#define ADDRESSES_5 void *a1, void *a2, void *a3, void *a4, void *a5
#define ADDRESSES_6 void *a1, void *a2, void *a3, void *a4, void *a5, void *a6
#define ADDRESSES_7 void *a1, void *a2, void *a3, void *a4, void *a5, void *a6, void *a7
#define ADDRESSES_8 void *a1, void *a2, void *a3, void *a4, void *a5, void *a6, void *a7, void *a8
#define ADDRESSES_9 void *a1, void *a2, void *a3, void *a4, void *a5, void *a6, void *a7, void *a8, void *a9
#define ADDRESSES_10                                                                                         \
    void *a1, void *a2, void *a3, void *a4, void *a5, void *a6, void *a7, void *a8, void *a9, void *a10
#define ADDRESSES_11                                                                                         \
    void *a1, void *a2, void *a3, void *a4, void *a5, void *a6, void *a7, void *a8, void *a9, void *a10,     \
        void *a11
#define ADDRESSES_12                                                                                         \
    void *a1, void *a2, void *a3, void *a4, void *a5, void *a6, void *a7, void *a8, void *a9, void *a10,     \
        void *a11, void *a12
#define ADDRESSES_13                                                                                         \
    void *a1, void *a2, void *a3, void *a4, void *a5, void *a6, void *a7, void *a8, void *a9, void *a10,     \
        void *a11, void *a12, void *a13

#define ARGUMENTS_1 a1
#define ARGUMENTS_2 a1, a2
#define ARGUMENTS_3 a1, a2, a3
#define ARGUMENTS_4 a1, a2, a3, a4
#define ARGUMENTS_5 a1, a2, a3, a4, a5
#define ARGUMENTS_6 a1, a2, a3, a4, a5, a6
#define ARGUMENTS_7 a1, a2, a3, a4, a5, a6, a7
#define ARGUMENTS_8 a1, a2, a3, a4, a5, a6, a7, a8
#define ARGUMENTS_9 a1, a2, a3, a4, a5, a6, a7, a8, a9
#define ARGUMENTS_10 a1, a2, a3, a4, a5, a6, a7, a8, a9, a10
#define ARGUMENTS_11 a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11
#define ARGUMENTS_12 a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12
#define ARGUMENTS_13 a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13

#endif
