/* Where a rank really runs: host name, CPU, affinity, namespaces. */
#ifndef NEARMETAL_PLACE_H
#define NEARMETAL_PLACE_H

#include "text.h"

/* Add {"rank":0,"host":"..","cpu":0,"affinity":[0],"namespaces":{"mnt":4026531841,..}}. A namespace that
   cannot be read is left out. */
void place_json(Text *text, int rank);

#endif
