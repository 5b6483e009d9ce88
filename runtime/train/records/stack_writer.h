#pragma once
// Writes the stack of the main thread, which trains, to stderr on SIGUSR1. The supervisor sends SIGUSR1 to a
// rank that hangs before it kills it.

namespace lockstep::train {

// Call from the main thread, before other threads exist.
void WriteStackOnSignal();

}  // namespace lockstep::train
