#ifndef NM_PORT_H
#define NM_PORT_H

#include "guest.h"

/* A descriptor that does not block; waits until the port is there, or the host calls. */
int open_port(const struct given *given);

#endif
