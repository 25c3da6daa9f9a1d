// SPDX-License-Identifier: Apache-2.0
// The object `resilience` of run.json: what failures and restarts cost a run under ddp-run.
#pragma once

#include <array>
#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::report {

struct UseName {
  std::string_view key;   // in run.json
  std::string_view name;  // for people
};

// What time is used for; in the order in which they occur in a generation, as far as they have one.
inline constexpr std::array<UseName, 11> kUsesOfTime{{
    {"queue", "queue"},
    {"waiting", "no process runs"},
    {"launch", "starting"},
    {"load", "loading a checkpoint"},
    {"productive", "productive steps"},
    {"degraded", "missing nodes"},
    {"checkpoint_stall", "waiting for checkpoints"},
    {"other", "evaluation, callbacks, the end"},
    {"repeat", "repeated steps"},
    {"detect", "detecting failures"},
    {"stop", "stopping"},
}};

using UseSeconds = std::array<double, kUsesOfTime.size()>;

struct ResilienceRecord {
  struct Generation {
    double number = 0;
    std::string job;  // of SLURM; empty without
    double nodes = 0;
    double ranks = 0;
    std::optional<double> from_step;
    std::optional<double> to_step;
    double steps_repeated = 0;
    std::string restored_from;
    bool failed = false;
    std::string why_ended;  // empty: well
    std::string blamed;     // nodes, separated by commas
    std::optional<double> detected_after;
    std::optional<double> recovered_after;
    UseSeconds seconds{};
  };

  double wall_seconds = 0;
  UseSeconds seconds{};  // sum to wall_seconds
  std::optional<double> ettr;
  double jobs = 0;
  double faults = 0;
  std::optional<double> mtti_seconds;
  std::optional<double> checkpoint_interval;
  std::optional<double> young_interval;
  double generations_in_all = 0;
  UseSeconds older{};  // of generations that are not listed
  UseSeconds after{};  // after the last one
  std::vector<Generation> generations;
};

// Nullopt for a run without ddp-run. Throws InputError for anything that ddp-run does not write.
std::optional<ResilienceRecord> read_resilience(const nlohmann::json& run);

}  // namespace ddp::report
