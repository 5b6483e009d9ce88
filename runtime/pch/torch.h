#pragma once
// The precompiled header of everything that links LibTorch: its umbrella header costs half a minute per
// translation unit without it. Never included by name; `lockstep_torch_library` and `lockstep_torch_test` put
// it in front.

#include <torch/torch.h>
