/* A socket between ranks 0 and 1, beside MPI, which only carries the addresses. */
#ifndef NEARMETAL_SOCKETS_H
#define NEARMETAL_SOCKETS_H

#include "pingpong.h"

/* Both ranks bind to the IPv4 address of world.interface, and to no other, tell each other where, and
   connect. type: SOCK_STREAM or SOCK_DGRAM. Also reads the key `wait`. */
void sockets_open(Pingpong *pingpong, Spec *spec, int type);

void sockets_close(Pingpong *pingpong);

#endif
