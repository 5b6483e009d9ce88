#pragma once
// The part of a conversion that says how ranks start and find each other: the processes of each pod, and the
// rendezvous. From the fields of the job and the flags of torchrun, which both have these settings.

#include "runtime/tools/convert/conversion.h"

namespace lockstep::convert {

// nprocPerNode.
void ConvertProcesses(Conversion& job);
// rdzvConf.
void ConvertRendezvous(Conversion& job);

}  // namespace lockstep::convert
