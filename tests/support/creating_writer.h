#pragma once
// A client of the API server for tests of code that only creates objects, such as reviews: the other writes
// change nothing.

#include "operator/kube/client.h"

namespace lockstep::testing {

class CreatingWriter : public kube::KubeWriter {
 public:
  Result<Json> Replace(const kube::Resource&, const Json& object) override { return object; }
  Result<Json> Patch(const kube::Resource&, const kube::ObjectKey&, const Json& patch,
                     const kube::PatchOptions&) override {
    return patch;
  }
  Result<Json> Delete(const kube::Resource&, const kube::ObjectKey&, const kube::DeleteOptions&) override {
    return Json();
  }
};

}  // namespace lockstep::testing
