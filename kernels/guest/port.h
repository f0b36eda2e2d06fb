#ifndef NM_PORT_H
#define NM_PORT_H

#include "guest.h"

/* Wait until the port exists or the host has connected. Return a non-blocking descriptor of the line. */
int open_port(const struct given *given);

#endif
