#include "operator/kube/exec_credentials.h"

#include <utility>

#include "operator/kube/command.h"
#include "runtime/common/base/json.h"
#include "runtime/common/base/time_text.h"
#include "runtime/common/http/cpprest_transport.h"

namespace lockstep::kube {
namespace {

constexpr std::chrono::minutes kEarly{1};
constexpr const char* kTokenFile = "exec-token";
constexpr const char* kCertificateFile = "exec-certificate.pem";

class ExecTransport final : public http::HttpTransport {
 public:
  ExecTransport(std::unique_ptr<ExecCredentials> credentials, std::unique_ptr<http::HttpTransport> inner)
      : credentials_(std::move(credentials)), inner_(std::move(inner)) {}

  Result<http::Response> Send(const http::Request& request, std::stop_token stop) override {
    return WithCredentials([&] { return inner_->Send(request, stop); });
  }
  Result<http::Response> Stream(const http::Request& request, const http::ChunkHandler& on_chunk,
                                std::stop_token stop) override {
    return WithCredentials([&] { return inner_->Stream(request, on_chunk, stop); });
  }

 private:
  template <typename Exchange>
  Result<http::Response> WithCredentials(Exchange exchange) {
    LOCKSTEP_TRY(credentials_->Ensure());
    auto response = exchange();
    if (!response.ok() || response->status != 401) return response;
    LOCKSTEP_TRY(credentials_->Renew());
    return exchange();
  }

  const std::unique_ptr<ExecCredentials> credentials_;
  const std::unique_ptr<http::HttpTransport> inner_;
};

}  // namespace

Result<ExecCredential> ExecCredentialFromText(const std::string& text, const std::string& api_version) {
  const auto wrong = [](const std::string& what) { return Error{ErrorCode::kUnauthorized, what}; };
  LOCKSTEP_TRY(const Json json, ParseJson(text).WithContext("ExecCredential"));
  if (StringAt(json, {"kind"}) != "ExecCredential") return wrong("it wrote no ExecCredential");
  if (StringAt(json, {"apiVersion"}) != api_version) {
    return wrong("it wrote \"" + StringAt(json, {"apiVersion"}) + "\", asked was " + api_version);
  }
  const std::string certificate = StringAt(json, {"status", "clientCertificateData"});
  const std::string key = StringAt(json, {"status", "clientKeyData"});
  if (certificate.empty() != key.empty())
    return wrong("clientCertificateData and clientKeyData must both be given");
  ExecCredential credential{.token = StringAt(json, {"status", "token"})};
  if (!key.empty()) credential.certificate_and_key = certificate + "\n" + key;
  if (credential.token.empty() && key.empty()) return wrong("it gave neither a token nor a certificate");
  if (const std::string expires = StringAt(json, {"status", "expirationTimestamp"}); !expires.empty()) {
    LOCKSTEP_TRY(credential.expires, ParseTime(expires).WithContext("expirationTimestamp"));
  }
  return credential;
}

Result<void> ExecCredentials::Ensure() {
  const MutexLock lock(mutex_);
  const bool is_good = current_ && (!current_->expires || clock_.Now() + kEarly < *current_->expires);
  return is_good ? Result<void>() : Run();
}

Result<void> ExecCredentials::Renew() {
  const MutexLock lock(mutex_);
  return Run();
}

Result<void> ExecCredentials::Run() {
  const Json info = {
      {"apiVersion", plugin_.api_version}, {"kind", "ExecCredential"}, {"spec", {{"interactive", false}}}};
  Command command{.words = plugin_.words, .environment = plugin_.environment};
  command.environment.push_back("KUBERNETES_EXEC_INFO=" + DumpJson(info));
  LOCKSTEP_TRY(const std::string output, RunCommand(command).WithContext("credentials"));
  auto credential = ExecCredentialFromText(output, plugin_.api_version);
  if (!credential.ok()) return credential.error().WithContext(plugin_.words.front());
  if (!credential->token.empty()) {
    LOCKSTEP_TRY(folder_.Write(kTokenFile, credential->token));
  }
  if (!credential->certificate_and_key.empty()) {
    LOCKSTEP_TRY(folder_.Write(kCertificateFile, credential->certificate_and_key));
  }
  current_ = std::move(credential).value();
  return {};
}

void ExecCredentials::AddTo(http::Endpoint& endpoint) const {
  const MutexLock lock(mutex_);
  if (!current_->token.empty()) endpoint.token_file = folder_.path() + "/" + kTokenFile;
  if (current_->certificate_and_key.empty()) return;
  endpoint.certificate_file = endpoint.key_file = folder_.path() + "/" + kCertificateFile;
}

Result<std::unique_ptr<http::HttpTransport>> MakeTransport(const ClientConfig& config, const Clock& clock) {
  if (!config.exec) return http::MakeTransport(config.endpoint);
  auto credentials = std::make_unique<ExecCredentials>(*config.exec, *config.files, clock);
  LOCKSTEP_TRY(credentials->Ensure());
  http::Endpoint endpoint = config.endpoint;
  credentials->AddTo(endpoint);
  LOCKSTEP_TRY(auto inner, http::MakeTransport(endpoint));
  return std::unique_ptr<http::HttpTransport>(
      std::make_unique<ExecTransport>(std::move(credentials), std::move(inner)));
}

}  // namespace lockstep::kube
