#include "tests/support/s3_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "runtime/common/base/result.h"
#include "tests/support/eventually.h"

namespace lockstep::testing {
namespace {

using namespace std::chrono_literals;

constexpr int kAttempts = 5;

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

const sockaddr* Plain(const sockaddr_in& address) {
  return static_cast<const sockaddr*>(static_cast<const void*>(&address));
}

bool Answers(int port) {
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = Loopback(port);
  return ::connect(socket.get(), Plain(address), sizeof address) == 0;
}

// Becomes the server; only what may follow a fork of a process with threads.
int RunServer(const char* program, const char* address, const char* folder) {
  const int nowhere = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ::dup2(nowhere, STDOUT_FILENO);
  ::execl(program, program, "--port", address, "--access", S3Server::kKey, "--secret", S3Server::kSecret,
          "--region", "us-east-1", "--keep-alive", "--quiet", "posix", folder, nullptr);
  return 127;
}

}  // namespace

Fd BindLoopback(int& port) {
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = Loopback(0);
  LOCKSTEP_CHECK(::bind(socket.get(), Plain(address), sizeof address) == 0, "no free port");
  socklen_t size = sizeof address;
  ::getsockname(socket.get(), static_cast<sockaddr*>(static_cast<void*>(&address)), &size);
  port = ntohs(address.sin_port);
  return socket;
}

std::string S3Server::Program() {
  const std::string command = LOCKSTEP_SOURCE_DIR "/tests/cluster/programs/build.sh --print-bin";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  std::array<char, 4096> line{};
  if (pipe == nullptr || std::fgets(line.data(), line.size(), pipe.get()) == nullptr) return "";
  std::string folder = line.data();
  while (folder.ends_with('\n')) folder.pop_back();
  const std::string program = folder + "/versitygw";
  return ::access(program.c_str(), X_OK) == 0 ? program : "";
}

S3Server::S3Server() : folder_(std::filesystem::temp_directory_path() / "lockstep-s3-XXXXXX") {
  LOCKSTEP_CHECK(::mkdtemp(folder_.data()) != nullptr, "no folder");
  for (int attempt = 0; attempt < kAttempts; ++attempt) {  // another process may take the port in between
    int port = 0;
    BindLoopback(port).Reset();
    if (StartAt(port)) return;
  }
  LOCKSTEP_CHECK(false, "versitygw does not start");
}

S3Server::~S3Server() {
  Stop();
  std::filesystem::remove_all(folder_);
}

bool S3Server::StartAt(int port) {
  port_ = port;
  const std::string program = Program();
  const std::string address = "127.0.0.1:" + std::to_string(port);
  process_.emplace(
      [&](LineChannel&) { return RunServer(program.c_str(), address.c_str(), folder_.c_str()); });
  return Eventually([&] { return Answers(port) || process_->Wait(0ms).has_value(); }) &&
         !process_->Wait(0ms).has_value();
}

void S3Server::Start() { LOCKSTEP_CHECK(StartAt(port_), "versitygw does not start again"); }

void S3Server::Stop() { process_.reset(); }

void S3Server::MakeBucket(const std::string& name) const {
  std::filesystem::create_directory(folder_ + "/" + name);
}

DeafPort::DeafPort(bool held) : socket_(BindLoopback(port_)) {
  if (held) LOCKSTEP_CHECK(::listen(socket_.get(), 64) == 0, "cannot listen");
}

}  // namespace lockstep::testing
