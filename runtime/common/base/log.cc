#include "runtime/common/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <memory>

#include "runtime/common/base/clock.h"
#include "runtime/common/base/json.h"
#include "runtime/common/base/time_text.h"

namespace lockstep::log {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"debug", "info", "warning", "error"};
constexpr std::array<spdlog::level::level_enum, 4> kSpdlogLevels = {spdlog::level::debug, spdlog::level::info,
                                                                    spdlog::level::warn, spdlog::level::err};

struct State {
  State() : logger("lockstep", std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    logger.set_pattern("%v");
    logger.flush_on(spdlog::level::debug);
  }
  spdlog::logger logger;
  std::vector<Field> bound;
};

State& Global() {
  static State state;
  return state;
}

void Add(nlohmann::ordered_json& line, const Field& field) {
  std::visit([&](const auto& value) { line[field.key] = value; }, field.value);
}

}  // namespace

void Bind(Fields fields) { Global().bound.insert(Global().bound.end(), fields.begin(), fields.end()); }

void SetLevel(Level level) { Global().logger.set_level(kSpdlogLevels.at(static_cast<std::size_t>(level))); }

void SetLevel(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames.at(i) == name) SetLevel(static_cast<Level>(i));
  }
}

void Write(Level level, std::string_view message, Fields fields) {
  const auto spdlog_level = kSpdlogLevels.at(static_cast<std::size_t>(level));
  if (!Global().logger.should_log(spdlog_level)) return;
  nlohmann::ordered_json line;
  line["time"] = FormatMicroTime(SystemClock().Now());
  line["level"] = kNames.at(static_cast<std::size_t>(level));
  line["message"] = message;
  for (const Field& field : Global().bound) Add(line, field);
  for (const Field& field : fields) Add(line, field);
  Global().logger.log(spdlog_level,
                      line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace lockstep::log
