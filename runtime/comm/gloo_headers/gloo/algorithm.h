#pragma once
// c10d's ProcessGroupGloo.hpp names this header and the wheel does not ship it; nothing of it is needed.
