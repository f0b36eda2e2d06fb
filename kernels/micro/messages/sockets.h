/* A socket between ranks 0 and 1. MPI is only used to exchange the addresses. */
#ifndef NEARMETAL_SOCKETS_H
#define NEARMETAL_SOCKETS_H

#include "pingpong.h"

/* Connect the two ranks. Each binds to the IPv4 address of world.interface only, and sends its port to the
   other. type: SOCK_STREAM or SOCK_DGRAM. Also reads the key `wait`. */
void sockets_open(Pingpong *pingpong, Spec *spec, int type);

void sockets_close(Pingpong *pingpong);

#endif
