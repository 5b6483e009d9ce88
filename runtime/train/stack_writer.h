#pragma once
// Writes the stack of the main thread, which trains, to stderr when the process gets SIGUSR1: the supervisor
// sends it to a rank that hangs, before it ends it.

namespace lockstep::train {

// From main's thread, before others exist.
void WriteStackOnSignal();

}  // namespace lockstep::train
