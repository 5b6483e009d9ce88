#pragma once
// Names of gloo's transport that c10d's ProcessGroupGloo.hpp mentions by pointer.

namespace gloo::transport {

class Device;
class UnboundBuffer;

}  // namespace gloo::transport
