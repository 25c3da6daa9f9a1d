// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/elastic/accounting/resilience.h"

#include <fmt/format.h>

#include "base/duration.h"
#include "base/young.h"

namespace ddp::elastic {
namespace {

using nlohmann::json;

double to_seconds(Micros time) {
  return static_cast<double>(time) / 1e6;
}

json seconds_or_null(const std::optional<Micros>& time) {
  return time ? json(to_seconds(*time)) : json();
}

json ratio_or_null(double value, double of) {
  return of > 0 ? json(value / of) : json();
}

json uses_json(const Uses& uses) {
  json object = json::object();
  for (std::size_t i = 0; i < kUses; ++i) {
    object[kUseNames[i]] = to_seconds(uses[static_cast<Use>(i)]);
  }
  return object;
}

json lost_json(const Uses& uses) {
  auto lost = uses_json(uses);
  lost.erase(std::string(kUseNames[static_cast<std::size_t>(Use::productive)]));
  return lost;
}

json generation_json(const GenerationAccount& generation) {
  json object{{"number", generation.number},
              {"generation", generation.generation},
              {"nodes", generation.nodes},
              {"world_size", generation.ranks},
              {"begun", to_seconds(generation.begun)},
              {"from_step", generation.from_step ? json(*generation.from_step) : json()},
              {"to_step", generation.from_step ? json(generation.to_step) : json()},
              {"steps_repeated", generation.steps_repeated},
              {"restored_from", generation.restored_from},
              {"failed", generation.failed},
              {"why_ended", generation.why_ended},
              {"blamed", generation.blamed},
              {"detected_after", seconds_or_null(generation.detected_after)},
              {"recovered_after", seconds_or_null(generation.recovered_after)},
              {"seconds", uses_json(generation.uses)}};
  if (!generation.job.empty()) object["job"] = generation.job;
  return object;
}

Micros without_queue(const Account& account) {
  return account.wall() - account.uses()[Use::queue];
}

// The time in which processes run.
double running_seconds(const Account& account) {
  return to_seconds(without_queue(account) - account.uses()[Use::waiting]);
}

json checkpoints_json(const Account& account) {
  const auto saves = static_cast<double>(account.saves());
  const double stall = to_seconds(account.uses()[Use::checkpoint_stall]);
  const auto faults = static_cast<double>(account.faults());
  json object{{"saves", account.saves()},
              {"mean_stall_seconds", ratio_or_null(stall, saves)},
              {"interval_seconds", ratio_or_null(running_seconds(account), saves)},
              {"young_interval_seconds", nullptr}};
  if (saves > 0 && faults > 0) {
    object["young_interval_seconds"] =
        ddp::young_interval(stall / saves, running_seconds(account) / faults);
  }
  return object;
}

json goodput_json(const Account& account) {
  const auto steps = static_cast<double>(account.steps() - account.first_step());
  if (!account.told_steps()) return nullptr;
  constexpr double kHourSeconds = 3600;
  return {{"steps", steps},
          {"steps_per_second", ratio_or_null(steps, to_seconds(without_queue(account)))},
          {"steps_per_node_hour", ratio_or_null(steps * kHourSeconds, account.node_seconds())}};
}

const char* ending_of_run(const Account& account) {
  if (!account.code()) return "running";
  switch (*account.code()) {
    case 0:
      return "finished";
    case 75:
      return "to be continued";
    default:
      return "failed";
  }
}

// The part of the whole time, queue included, for which a use is the reason.
struct Loss {
  Use use = Use::other;
  Micros time = 0;
};

Loss biggest_loss(const Account& account) {
  Loss biggest;
  for (std::size_t i = 1; i < kUses; ++i) {
    const auto use = static_cast<Use>(i);
    if (use == Use::queue || account.uses()[use] <= biggest.time) continue;
    biggest = {use, account.uses()[use]};
  }
  return biggest;
}

const char* in_words(Use use) {
  switch (use) {
    case Use::repeat:
      return "steps that were done again";
    case Use::detect:
      return "noticing failures";
    case Use::stop:
      return "ending processes";
    case Use::launch:
      return "starting processes";
    case Use::load:
      return "loading checkpoints";
    case Use::checkpoint_stall:
      return "writing checkpoints";
    case Use::degraded:
      return "missing nodes";
    case Use::waiting:
      return "waiting for nodes";
    case Use::queue:
      return "the queue";
    case Use::productive:
    case Use::other:
      break;
  }
  return "evaluation, callbacks and the end of the program";
}

}  // namespace

std::optional<double> ettr_of(const Account& account) {
  const auto time = without_queue(account);
  if (!account.told_steps() || time <= 0) return std::nullopt;
  return static_cast<double>(account.uses()[Use::productive]) / static_cast<double>(time);
}

json resilience_of(const Account& account) {
  json generations = json::array();
  for (const auto& one : account.generations()) generations.push_back(generation_json(one));
  json excluded = json::array();
  for (const auto& [node, why] : account.excluded()) {
    excluded.push_back({{"node", node}, {"why", why}});
  }
  const auto ettr = ettr_of(account);
  return {{"schema", kResilienceSchema},
          {"started_unix", account.unix_begin()},
          {"outcome", ending_of_run(account)},
          {"wall_seconds", to_seconds(account.wall())},
          {"productive_seconds", to_seconds(account.uses()[Use::productive])},
          {"lost", lost_json(account.uses())},
          {"ettr", ettr ? json(*ettr) : json()},
          {"goodput", goodput_json(account)},
          {"jobs", account.jobs()},
          {"faults", account.faults()},
          {"mtti_seconds",
           ratio_or_null(running_seconds(account), static_cast<double>(account.faults()))},
          {"checkpoints", checkpoints_json(account)},
          {"steps", account.told_steps() ? json(account.steps()) : json()},
          {"steps_repeated", account.steps_repeated()},
          {"nodes_excluded", std::move(excluded)},
          {"generations_in_all", account.number_of_generations()},
          {"seconds_of_older_generations", uses_json(account.older())},
          {"seconds_after_the_last", uses_json(account.after())},
          {"generations", std::move(generations)}};
}

std::string resilience_sentence(const Account& account) {
  const auto ettr = ettr_of(account);
  if (!ettr || !account.made_steps()) return {};
  const double time = to_seconds(without_queue(account));
  auto text = fmt::format("the program made progress in {:.1f} % of {} (ETTR {:.3f})", *ettr * 100,
                          rounded_duration(time), *ettr);
  const auto loss = biggest_loss(account);
  if (loss.time == 0) return text;
  return text + fmt::format("; the biggest loss is {}, {:.1f} %", in_words(loss.use),
                            to_seconds(loss.time) / time * 100);
}

}  // namespace ddp::elastic
