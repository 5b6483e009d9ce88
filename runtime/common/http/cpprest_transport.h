#pragma once
// HttpTransport over cpprestsdk. One object per server; keeps connections alive. Call
// InitializeHttpThreads first in main: cpprestsdk otherwise starts 40 threads at first use.

#include <memory>

#include "runtime/common/http/transport.h"

namespace lockstep::http {

void InitializeHttpThreads(int threads);

// Fails if the URL does not parse or a named file cannot be read.
[[nodiscard]] Result<std::unique_ptr<HttpTransport>> MakeTransport(const Endpoint& endpoint);

}  // namespace lockstep::http
