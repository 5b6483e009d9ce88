#pragma once
// Multipart uploads that nobody completes.

#include <string>

namespace lockstep::testing {

// As of a process that is killed before it completes it, to the server that AWS_ENDPOINT_URL names; `path` as
// a URL has it.
void BeginUpload(const std::string& path);

}  // namespace lockstep::testing
