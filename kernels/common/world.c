/* Checked MPI calls. */
#include "world.h"

#include "fail.h"

void mpi_check(int code, const char *call) {
    if (code == MPI_SUCCESS)
        return;
    char words[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (MPI_Error_string(code, words, &length) != MPI_SUCCESS)
        fail("MPI error %d in %s", code, call);
    fail("%s in %s", words, call);
}
