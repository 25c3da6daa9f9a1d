// SPDX-License-Identifier: Apache-2.0
// A line of events.jsonl as the accounting reads it. The file may be damaged, or written by another
// version: what is not understood is left out, and every value is bounded.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddp_runtime/elastic/accounting/uses.h"

namespace ddp::elastic {

enum class EntryKind : std::uint8_t {
  begin,  // a job begins
  start,
  rank_ready,
  rank_ended,
  told,
  restoring,
  training,
  progress,
  kept,            // on a disk
  kept_in_memory,  // lost with the job
  signaled,
  failed,  // why, and whose failure it was
  stop,
  kill,
  executor_gone,
  exclude,
  requeue,
  finish,
  something_else,
};

struct Entry {
  EntryKind kind = EntryKind::something_else;
  std::string run;  // of which ddp-run; empty in older files
  std::string job;  // of SLURM; empty without
  std::optional<Micros> since_begin;
  double unix_seconds = 0;

  int generation = 0;
  std::int64_t step = 0;
  int code = 0;  // exit code
  int signal = 0;
  bool save = false;        // of `stop`: the program is asked to save
  int nodes = 0;            // of `begin`: as many as the program is to have; of `start`
  int allocated_nodes = 0;  // of `begin`: those of the job
  int ranks_per_node = 1;   // of `begin`
  std::string restore;      // of `start`, as describe(State)
  std::string text;         // why
  std::string node;         // of `exclude`
  std::vector<std::string> blamed;
  // Of `progress`: sums since training began in this generation.
  std::optional<Micros> steps_time;
  Micros stall_time = 0;
  std::int64_t saves = 0;
};

// nullopt for what is not an entry.
std::optional<Entry> entry_from_json(const nlohmann::json& line);
std::optional<Entry> parse_entry(std::string_view line);

// Seconds that are a number from 0, of at most three years; nullopt for others.
std::optional<Micros> micros_from_json(const nlohmann::json& object, const char* key);

}  // namespace ddp::elastic
