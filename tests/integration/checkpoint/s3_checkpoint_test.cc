// Checkpoints in a real S3 server: what is stored comes back.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "runtime/checkpoint/checkpointer.h"
#include "runtime/checkpoint/open_store.h"
#include "runtime/checkpoint/save_writer.h"
#include "runtime/common/base/file.h"
#include "tests/integration/checkpoint/request_recorder.h"
#include "tests/integration/checkpoint/s3_fixture.h"
#include "tests/integration/checkpoint/slow_link.h"
#include "tests/support/fake_clock.h"
#include "tests/support/s3_server.h"
#include "tests/unit/runtime/checkpoint/complete_steps.h"
#include "tests/unit/runtime/checkpoint/memory_exchange.h"
#include "tests/unit/runtime/checkpoint/whole_state.h"

namespace lockstep::checkpoint {
namespace {

using namespace std::chrono_literals;
using lockstep::testing::FakeClock;
using lockstep::testing::RequestRecorder;
using lockstep::testing::S3Server;
using lockstep::testing::SlowLink;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kLong = 120s;
constexpr std::size_t kMegabyte = std::size_t{1} << 20;

std::string Content(std::size_t bytes, unsigned int seed) {
  std::string content(bytes, '\0');
  for (std::size_t i = 0; i < bytes; i += 64) content[i] = static_cast<char>(seed + i / 64 * 7);
  return content;
}

std::vector<std::string> NamesOf(ObjectStore& store) {
  std::vector<std::string> names;
  const auto objects = store.List();
  for (const ObjectInfo& object : objects.value()) names.push_back(object.name);
  return names;
}

TEST_F(S3Test, GivesBackWhatWasPut) {
  const auto store = OpenStore();
  EXPECT_THAT(NamesOf(*store), IsEmpty()) << "the probe of opening is gone";
  const std::string content("a\0b\n", 4);
  ASSERT_TRUE(store->Put("step-1/b", content).ok());
  ASSERT_TRUE(store->Put("step-1/a", "").ok());
  EXPECT_EQ(*store->Get("step-1/b"), content);
  EXPECT_EQ(*store->Get("step-1/a"), "");
  ASSERT_TRUE(store->Put("step-1/b", "newer").ok());
  EXPECT_EQ(*store->Get("step-1/b"), "newer");
  EXPECT_EQ(store->UriOf("step-1/b"), Uri() + "/step-1/b");
  EXPECT_EQ(store->Get("step-1/c").error().code, ErrorCode::kNotFound);
}

TEST_F(S3Test, ListsOnlyWhatIsBelowItsUri) {
  const auto store = OpenStore();
  auto neighbour = OpenObjectStore(Uri() + "-2");
  ASSERT_TRUE(neighbour.ok());
  ASSERT_TRUE((*neighbour)->Put("step-1/z", "z").ok());
  for (const char* name : {"step-2/x", "step-1/y", "step-1/x"}) ASSERT_TRUE(store->Put(name, "123").ok());
  EXPECT_THAT(NamesOf(*store), ElementsAre("step-1/x", "step-1/y", "step-2/x"));
  EXPECT_EQ(store->List()->at(0).bytes, 3);
  ASSERT_TRUE(store->Delete("step-1/x").ok());
  EXPECT_TRUE(store->Delete("step-1/x").ok()) << "what does not exist is deleted already";
  EXPECT_THAT(NamesOf(*store), ElementsAre("step-1/y", "step-2/x"));
}

TEST_F(S3Test, AWholeBucketMayBeTheUri) {
  server_->MakeBucket("whole");
  const auto store = OpenObjectStore("s3://whole/");
  ASSERT_TRUE(store.ok()) << store.error().ToString();
  ASSERT_TRUE((*store)->Put("step-1/x", "1").ok());
  EXPECT_THAT(NamesOf(**store), ElementsAre("step-1/x"));
}

// An HTTP-chunked body ends with a packet of its own. A server that answers before it has read that one takes
// it for the next request and refuses it: rarely, and more often on a busy machine.
TEST(S3Upload, GivesTheLengthOfTheBody) {
  RequestRecorder server;
  SetCredentials(S3Server::kKey, S3Server::kSecret, server.url());
  const auto store = OpenObjectStore("s3://bucket/prefix");
  ASSERT_TRUE(store.ok()) << store.error().ToString();
  ASSERT_TRUE((*store)->Put("x", Content(kMegabyte, 1)).ok());
  const auto heads = server.UploadHeads();
  ASSERT_GE(heads.size(), 2U) << "the probe of opening, the object";
  EXPECT_THAT(heads, ::testing::Each(::testing::Not(HasSubstr("chunked"))));
  EXPECT_THAT(heads.back(), HasSubstr("content-length: " + std::to_string(kMegabyte)));
}

// versitygw finds a bucket in the path, too: only the request tells.
TEST(S3Upload, NamesTheBucketInTheHostWhereThatIsTold) {
  RequestRecorder server;
  const std::string port = server.url().substr(server.url().rfind(':'));
  SetCredentials(S3Server::kKey, S3Server::kSecret, "http://localhost" + port);
  ASSERT_TRUE(OpenObjectStore("s3://bucket/prefix").ok());
  EXPECT_THAT(server.UploadHeads().back(), HasSubstr("host: localhost" + port));
  ::setenv("AWS_S3_ADDRESSING_STYLE", "virtual", 1);
  ASSERT_TRUE(OpenObjectStore("s3://bucket/prefix").ok());
  EXPECT_THAT(server.UploadHeads().back(), HasSubstr("host: bucket.localhost" + port));
}

TEST(S3Upload, AsksTheProxyOfTheEnvironment) {
  RequestRecorder proxy;
  SetCredentials(S3Server::kKey, S3Server::kSecret, "http://store.example:9000");
  ::setenv("http_proxy", proxy.url().c_str(), 1);
  const auto store = OpenObjectStore("s3://bucket/prefix");
  ::unsetenv("http_proxy");
  ASSERT_TRUE(store.ok()) << store.error().ToString();
  ASSERT_FALSE(proxy.UploadHeads().empty());
  EXPECT_THAT(proxy.UploadHeads().front(), ::testing::StartsWith("put http://store.example:9000/bucket/"));
}

TEST_F(S3Test, PutsManyFromTwoThreadsWithoutAFailure) {
  const auto store = OpenStore();
  const auto put_all = [&](unsigned int thread) {
    for (unsigned int i = 0; i < 150; ++i) {
      const auto put = store->Put(std::to_string(thread) + "/" + std::to_string(i), Content(kMegabyte, i));
      ASSERT_TRUE(put.ok()) << i << ": " << put.error().ToString();
    }
  };
  std::jthread other(put_all, 1);
  put_all(0);
  other.join();
  ASSERT_EQ(NamesOf(*store).size(), 300U);
  EXPECT_TRUE(*store->Get("1/149") == Content(kMegabyte, 149));
}

TEST_F(S3Test, PutsLargeOnesFromTwoThreads) {
  const auto store = OpenStore();
  const auto put_all = [&](unsigned int thread) {
    for (unsigned int i = 0; i < 4; ++i) {
      const std::string content = Content((thread == 0 ? 30 : 100) * kMegabyte + i, i);
      const auto put = store->Put(std::to_string(thread), content);
      ASSERT_TRUE(put.ok()) << i << ": " << put.error().ToString();
      ASSERT_TRUE(*store->Get(std::to_string(thread)) == content);
    }
  };
  std::jthread other(put_all, 1);
  put_all(0);
}

TEST_F(S3Test, PutsInPieces) {
  const auto store = OpenStore();
  const std::string content = Content(12 * kMegabyte + 7, 3);
  int64_t reported = 0;
  const Pace each = [&](int64_t bytes) {
    EXPECT_LE(bytes, kPacedBytes);
    reported += bytes;
    return Result<void>();
  };
  ASSERT_TRUE(store->PutPaced("step-1/x", content, each).ok());
  EXPECT_EQ(reported, static_cast<int64_t>(content.size()));
  EXPECT_EQ(*store->Get("step-1/x"), content);
  const auto ended = store->PutPaced("step-1/y", content, [&, left = 11](int64_t) mutable -> Result<void> {
    return left-- > 0 ? Result<void>() : Error{ErrorCode::kAborted, "given up"};
  });
  EXPECT_EQ(ended.error().code, ErrorCode::kAborted);
  EXPECT_THAT(NamesOf(*store), ElementsAre("step-1/x"));
}

int64_t BytesBelow(const std::string& folder) {
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    bytes += entry.is_regular_file() ? static_cast<int64_t>(entry.file_size()) : 0;
  return bytes;
}

// Or an upload that makes no progress would look like one that does, and memory would hold all of it.
TEST_F(S3Test, AsksForThePieceAfterAPartOnlyOnceThePartIsThere) {
  constexpr int64_t kPart = 10 * int64_t{kMegabyte};
  const auto store = OpenStore();
  const int64_t before = BytesBelow(server_->folder());
  int64_t given = 0;
  const auto put = store->PutPaced("x", Content(2 * kPart, 3), [&](int64_t bytes) {
    if (given == kPart) {
      EXPECT_GE(BytesBelow(server_->folder()) - before, kPart);
    }
    given += bytes;
    return Result<void>();
  });
  EXPECT_TRUE(put.ok()) << put.error().ToString();
}

TEST_F(S3Test, TellsWhenAnObjectChanged) {
  const auto store = OpenStore();
  ASSERT_TRUE(store->Put("owners/a.json", "{}").ok());
  const auto objects = store->List();
  ASSERT_TRUE(objects->at(0).changed.has_value());
  EXPECT_LT(std::chrono::abs(SystemClock().Now() - *objects->at(0).changed), 10min);
}

TEST_F(S3Test, SavesLoadsAndKeepsTheNewest) {
  api::CheckpointSpec spec{.uri = Uri(), .keep_last = 2};
  const protocol::JobIdentity job{"default", "mnist", "uid-1"};
  std::vector<std::unique_ptr<Checkpointer>> ranks;
  for (int rank = 0; rank < 2; ++rank) ranks.push_back(std::move(Checkpointer::Open(spec, job, {})).value());
  EXPECT_FALSE(Resume(*ranks[1])->has_value());
  const auto exchange = std::make_shared<MemoryExchange>();
  for (int step = 1; step <= 4; ++step) {
    const std::vector<NamedTensor> tensors = {{"large", torch::full({3'000'000}, step)},
                                              {"weight", torch::full({4, 4}, step + 0.5)},
                                              {"small", torch::full({2}, step, at::kLong)}};
    for (int rank = 0; rank < 2; ++rank)
      ranks[static_cast<std::size_t>(rank)]->Save({step, 1, rank, 2, tensors}, exchange);
    for (auto& rank : ranks) ASSERT_TRUE(rank->Wait(kLong).ok());
    for (auto& rank : ranks) ASSERT_FALSE(rank->TakeOutcomes().at(0).error);
  }
  EXPECT_THAT(CompleteSteps(*OpenStore()), ElementsAre(4, 3));
  const auto loaded = Resume(*ranks[1]);
  ASSERT_TRUE(loaded.ok()) << loaded.error().ToString();
  ASSERT_TRUE(loaded->has_value());
  EXPECT_EQ((*loaded)->manifest.step, 4);
  ASSERT_EQ((*loaded)->tensors.size(), 3U);
  for (const NamedTensor& named : (*loaded)->tensors) {
    EXPECT_TRUE(at::all(named.tensor.floor() == 4).item<bool>()) << named.name;
  }
  EXPECT_THAT(NamesOf(*OpenStore()), ::testing::SizeIs(6)) << "two shards and a manifest each";
}

// By the clock of the ranks, which the link moves, each part of the shard takes a third of the limit. By real time a
// part takes more than a second, so that the client waits for each of them (SendWindow).
TEST_F(S3Test, StoresASaveThatUploadsForLongerThanTheStallLimit) {
  constexpr int64_t kPart = 10 * int64_t{kMegabyte};
  constexpr int64_t kParts = 6;
  FakeClock clock;
  const SteadyTime begin = clock.Steady();
  SlowLink link(server_->port(), kPart / 2, [&clock](int64_t bytes) {
    clock.Advance(std::chrono::duration_cast<Milliseconds>(kStallLimit) * bytes / (3 * kPart));
  });
  SetCredentials(S3Server::kKey, S3Server::kSecret, link.url());
  const api::CheckpointSpec spec{.uri = Uri()};
  const protocol::JobIdentity job{"default", "mnist", "uid-1"};
  const auto exchange = std::make_shared<MemoryExchange>();
  const auto write = [&](int rank, int64_t bytes) {
    const auto store = OpenStore();
    const Ownership ownership(*store, job, {.uri = Uri(), .holder = "test"}, clock);
    const Json training = Json::object();
    SaveWriter writer(spec, job, training, *store, ownership, clock,
                      [](const PendingSave&, int64_t, const std::function<void()>&) {});
    const std::vector<NamedTensor> share = {{"weight", torch::zeros({bytes}, at::kByte)}};
    return writer.Write({.place = {.step = 7, .round = 3, .rank = rank, .world = 2, .tensors = {}},
                         .share = std::make_shared<HostCopy>(share, nullptr),
                         .exchange = exchange,
                         .started = clock.Steady()});
  };
  SaveOutcome of_rank_1;
  std::jthread rank_1([&] { of_rank_1 = write(1, kParts * kPart); });
  const SaveOutcome of_rank_0 = write(0, 8);
  rank_1.join();
  EXPECT_FALSE(of_rank_1.error) << of_rank_1.error->ToString();
  EXPECT_FALSE(of_rank_0.error) << of_rank_0.error->ToString();
  EXPECT_GT(clock.Steady() - begin, 1.5 * kStallLimit) << "the upload was too short for this test";
  SetCredentials(S3Server::kKey, S3Server::kSecret, server_->url());
  EXPECT_THAT(CompleteSteps(*OpenStore()), ElementsAre(7));
}

// The store has a checksum of its own, which fails before that of the manifest can.
TEST_F(S3Test, PassesOverACheckpointThatIsDamagedInTheStore) {
  const api::CheckpointSpec spec{.uri = Uri()};
  const auto checkpointer = std::move(Checkpointer::Open(spec, {"default", "mnist", "uid-1"}, {})).value();
  for (int step = 1; step <= 2; ++step) {
    checkpointer->Save({step, 1, 0, 1, {{"weight", torch::full({100}, step)}}}, nullptr);
    ASSERT_TRUE(checkpointer->Wait(kLong).ok());
  }
  const std::string path =
      server_->folder() + Uri().substr(4) + "/" + FolderOfStep(2) + "/" + ShardName(0, {"uid-1", 1, 1});
  std::string content = *ReadFile(path);
  content.back() = static_cast<char>(content.back() ^ 1);
  std::ofstream(path) << content;
  EXPECT_EQ(Load(*checkpointer, 2).error().code, ErrorCode::kDataLoss);
  const auto loaded = Resume(*checkpointer);
  ASSERT_TRUE(loaded.ok()) << loaded.error().ToString();
  EXPECT_EQ((*loaded)->manifest.step, 1);
}

TEST_F(S3Test, GoesOnWhenTheServerIsBack) {
  const auto store = OpenStore();
  ASSERT_TRUE(store->Put("x", "before").ok());
  server_->Stop();
  const auto put = store->Put("x", "meanwhile");
  const auto get = store->Get("x");
  server_->Start();
  ASSERT_FALSE(put.ok());
  EXPECT_EQ(put.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(get.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(*store->Get("x"), "before");
  ASSERT_TRUE(store->Put("x", "after").ok());
  EXPECT_EQ(*store->Get("x"), "after");
}

}  // namespace
}  // namespace lockstep::checkpoint
