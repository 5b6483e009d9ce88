#pragma once
// SHA-256 as 64 hex digits, of a complete text or of a sequence of pieces. One thread.

#include <memory>
#include <string>
#include <string_view>

struct evp_md_ctx_st;  // OpenSSL's

namespace lockstep::checkpoint {

class Sha256Sum {
 public:
  Sha256Sum();
  void Add(std::string_view piece);
  [[nodiscard]] std::string Finish();  // call once

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

[[nodiscard]] std::string Sha256(std::string_view content);

}  // namespace lockstep::checkpoint
