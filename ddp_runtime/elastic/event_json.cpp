// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/elastic/event_json.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "base/errors.h"
#include "base/text.h"

namespace ddp::elastic {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxTold = 4096;

json event_object(const char* name) {
  return {{"event", name}};
}

json of_generation(const char* name, int generation) {
  return {{"event", name}, {"generation", generation}};
}

json of_rank(const char* name, int generation, int rank) {
  return {{"event", name}, {"generation", generation}, {"rank", rank}};
}

struct EventWriter {
  json operator()(const Begin&) const { return event_object("begin"); }
  json operator()(const NodeUp& e) const { return {{"event", "node_up"}, {"node", e.node}}; }
  json operator()(const NodeLost& e) const {
    return {{"event", "node_lost"}, {"node", e.node}, {"why", e.why}};
  }
  json operator()(const RankReady& e) const { return of_rank("rank_ready", e.generation, e.rank); }
  json operator()(const RankEnded& e) const {
    auto object = of_rank("rank_ended", e.generation, e.rank);
    e.signal == 0 ? object["code"] = e.code : object["signal"] = e.signal;
    if (e.with_its_agent) object["with_its_agent"] = true;
    return object;
  }
  json operator()(const Told& e) const {
    auto object = of_rank("told", e.generation, e.rank);
    object["text"] = e.text;
    if (e.is_usage_error) object["usage_error"] = true;
    return object;
  }
  json operator()(const RankSilent& e) const {
    return of_rank("rank_silent", e.generation, e.rank);
  }
  json operator()(const RankAnswered& e) const {
    return of_rank("rank_answered", e.generation, e.rank);
  }
  json operator()(const Restoring& e) const { return of_generation("restoring", e.generation); }
  json operator()(const Training& e) const {
    auto object = of_generation("training", e.generation);
    object["step"] = e.step;
    return object;
  }
  json operator()(const Progress& e) const {
    auto object = of_generation("progress", e.generation);
    object["step"] = e.step;
    if (e.step_seconds) object["step_seconds"] = *e.step_seconds;
    if (e.stall_seconds) object["stall_seconds"] = *e.stall_seconds;
    if (e.saves) object["saves"] = *e.saves;
    return object;
  }
  json operator()(const Kept& e) const {
    auto object = of_generation("kept", e.generation);
    object["tier"] = e.state.tier == Tier::memory ? "memory" : "disk";
    object["step"] = e.state.step;
    if (e.divided) object["divided"] = true;
    return object;
  }
  json operator()(const ExecutorGone& e) const {
    auto object = of_generation("executor_gone", e.generation);
    if (!e.text.empty()) object["text"] = e.text;
    return object;
  }
  json operator()(const Checked& e) const {
    json object{{"event", "checked"}, {"node", e.node}, {"healthy", e.healthy}};
    if (!e.finding.empty()) object["finding"] = e.finding;
    if (e.unknown) object["unknown"] = true;
    return object;
  }
  json operator()(const Signaled& e) const { return {{"event", "signaled"}, {"signal", e.signal}}; }
  json operator()(const Tick&) const { return event_object("tick"); }
};

struct ActionWriter {
  json operator()(const Start& a) const {
    json object{{"action", "start"},
                {"generation", a.generation},
                {"nodes", a.nodes},
                {"restore", describe(a.restore)}};
    if (a.save) object["save"] = true;
    return object;
  }
  json operator()(const Stop& a) const {
    return {{"action", "stop"}, {"generation", a.generation}, {"grace", a.grace}, {"save", a.save}};
  }
  json operator()(const Kill& a) const {
    return {{"action", "kill"}, {"generation", a.generation}};
  }
  json operator()(const Check& a) const { return {{"action", "check"}, {"node", a.node}}; }
  json operator()(const Exclude& a) const {
    json object{{"action", "exclude"}, {"node", a.node}, {"why", a.why}};
    a.until >= kForever ? object["until"] = "end of job" : object["until"] = a.until;
    return object;
  }
  json operator()(const Requeue&) const { return {{"action", "requeue"}}; }
  json operator()(const Finish& a) const { return {{"action", "finish"}, {"code", a.code}}; }
  json operator()(const Note& a) const { return {{"action", "note"}, {"text", a.text}}; }
};

// Reads the fields of an event; what other processes send is bounded.
class EventReader {
 public:
  explicit EventReader(const json& object) : object_(object) {}

  std::string text(const char* key) const {
    const auto at = object_.find(key);
    if (at == object_.end() || !at->is_string()) fail(key);
    return std::string(beginning_of(at->get_ref<const std::string&>(), kMaxTold));
  }
  std::int64_t number(const char* key) const {
    const auto at = object_.find(key);
    if (at == object_.end() || !at->is_number_integer()) fail(key);
    return at->get<std::int64_t>();
  }
  std::optional<std::int64_t> number_if_there(const char* key) const {
    return object_.contains(key) ? std::optional(number(key)) : std::nullopt;
  }
  std::optional<Seconds> seconds_if_there(const char* key) const {
    const auto at = object_.find(key);
    if (at == object_.end()) return std::nullopt;
    if (!at->is_number() || !(at->get<double>() >= 0) || std::isinf(at->get<double>())) fail(key);
    return at->get<double>();
  }
  int integer(const char* key, int missing) const {
    return object_.contains(key) ? integer(key) : missing;
  }
  int integer(const char* key) const {
    const auto value = number(key);
    if (!std::in_range<int>(value)) fail(key);
    return static_cast<int>(value);
  }
  bool flag(const char* key) const {
    const auto at = object_.find(key);
    if (at == object_.end() || !at->is_boolean()) fail(key);
    return at->get<bool>();
  }
  int generation() const { return integer("generation"); }
  int rank() const { return integer("rank"); }

 private:
  [[noreturn]] static void fail(const char* key) {
    throw RuntimeError(fmt::format("an event has no valid '{}'", key));
  }

  const json& object_;
};

Tier tier_of(std::string_view name) {
  if (name == "memory") return Tier::memory;
  if (name == "disk") return Tier::disk;
  throw RuntimeError("an event has an unknown tier " + quote_for_display(name));
}

}  // namespace

json json_of(const Event& event) {
  return std::visit(EventWriter(), event);
}

json json_of(const Action& action) {
  return std::visit(ActionWriter(), action);
}

Event event_from_json(const json& object) {
  if (!object.is_object()) throw RuntimeError("an event is not a JSON object");
  const EventReader read(object);
  const auto name = read.text("event");
  if (name == "begin") return Begin{};
  if (name == "node_up") return NodeUp{read.text("node")};
  if (name == "node_lost") return NodeLost{read.text("node"), read.text("why")};
  if (name == "rank_ready") return RankReady{read.generation(), read.rank()};
  if (name == "rank_ended") {
    return RankEnded{read.generation(), read.rank(), read.integer("code", 0),
                     read.integer("signal", 0),
                     object.contains("with_its_agent") && read.flag("with_its_agent")};
  }
  if (name == "told") {
    return Told{read.generation(), read.rank(), read.text("text"),
                object.contains("usage_error") && read.flag("usage_error")};
  }
  if (name == "rank_silent") return RankSilent{read.generation(), read.rank()};
  if (name == "rank_answered") return RankAnswered{read.generation(), read.rank()};
  if (name == "restoring") return Restoring{read.generation()};
  if (name == "training") return Training{read.generation(), read.number("step")};
  if (name == "progress") {
    return Progress{read.generation(), read.number("step"), read.seconds_if_there("step_seconds"),
                    read.seconds_if_there("stall_seconds"), read.number_if_there("saves")};
  }
  if (name == "kept") {
    return Kept{read.generation(),
                {tier_of(read.text("tier")), read.number("step")},
                object.contains("divided") && read.flag("divided")};
  }
  if (name == "executor_gone") {
    return ExecutorGone{read.generation(), object.contains("text") ? read.text("text") : ""};
  }
  if (name == "checked") {
    return Checked{read.text("node"), read.flag("healthy"),
                   object.contains("finding") ? read.text("finding") : "",
                   object.contains("unknown") && read.flag("unknown")};
  }
  if (name == "signaled") return Signaled{read.integer("signal")};
  if (name == "tick") return Tick{};
  throw RuntimeError("unknown event " + quote_for_display(name));
}

std::string describe(const State& state) {
  switch (state.tier) {
    case Tier::none:
      return "none";
    case Tier::disk:
      return fmt::format("disk@{}", state.step);
    case Tier::memory:
      return fmt::format("memory@{}", state.step);
  }
  return "none";
}

}  // namespace ddp::elastic
