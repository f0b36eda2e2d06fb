/* nm-rank as a program of its own, for mpirun. */
#include "rank.h"

int main(int count, char **arguments) {
    return rank_main(count, arguments);
}
