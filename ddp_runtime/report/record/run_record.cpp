// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/report/record/run_record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <system_error>
#include <utility>

#include "base/json/bounded_json.h"
#include "ddp_runtime/report/record/error.h"

namespace ddp::report {
namespace {

using nlohmann::json;

constexpr std::uintmax_t kMaxBytes = std::uintmax_t{64} << 20;
constexpr std::size_t kMaxText = 4096;
constexpr std::size_t kMaxRanks = 65536;
constexpr std::size_t kMaxProblemsReported = 8;
constexpr double kMaxFigure = 1e15;
constexpr int kMaxProcessors = 65536;
constexpr int kAnyNumberOfRanks = std::numeric_limits<int>::max();
constexpr const char* kSchema = "slurm-ddp/run/1";

using Problems = std::vector<std::string>;

// One object of the file. Missing or invalid fields are collected, not thrown, so that all of them
// can be reported at once.
class Reader {
 public:
  Reader(const json& object, std::string prefix, Problems& problems)
      : object_(object), prefix_(std::move(prefix)), problems_(problems) {}

  // An integer of at least 1.
  int count(const char* key) {
    const json* value = required(key);
    if (value == nullptr) return 1;
    if (value->is_number_integer() && *value >= 1 && *value <= 1'000'000'000) {
      return value->get<int>();
    }
    wrong(key, "is not an integer of at least 1");
    return 1;
  }

  std::optional<double> number(const char* key) { return as_number(key, required(key)); }
  // A value that must not be negative.
  std::optional<double> amount(const char* key) { return not_negative(key, number(key)); }
  std::optional<double> amount_if_there(const char* key) {
    return not_negative(key, number_if_there(key));
  }
  std::optional<double> fraction(const char* key) { return at_most_one(key, amount(key)); }
  std::optional<double> fraction_if_there(const char* key) {
    return at_most_one(key, amount_if_there(key));
  }
  std::optional<double> number_if_there(const char* key) {
    const auto found = object_.find(key);
    return found == object_.end() ? std::nullopt : as_number(key, &*found);
  }

  // Returns an empty text for null, which means that the value is unknown.
  std::string text(const char* key) { return as_text(key, required(key)); }
  std::string text_if_there(const char* key) {
    const auto found = object_.find(key);
    return found == object_.end() ? std::string() : as_text(key, &*found);
  }

  // A nested object; empty if it is missing.
  Reader object(const char* key) {
    static const json kNothing = json::object();
    const json* value = required(key);
    const std::string inner = prefix_ + key + ".";
    if (value == nullptr) return {kNothing, inner, *scratch()};
    if (value->is_object()) return {*value, inner, problems_};
    wrong(key, "is not an object");
    return {kNothing, inner, *scratch()};
  }

  const json* list(const char* key, std::size_t most) {
    const json* value = required(key);
    if (value == nullptr) return nullptr;
    if (value->is_array() && value->size() <= most) return value;
    wrong(key, fmt::format("is not a list of at most {} entries", most));
    return nullptr;
  }

  const json& raw() const { return object_; }
  void wrong(const std::string& key, const std::string& what) {
    problems_.push_back(fmt::format("'{}{}' {}", prefix_, key, what));
  }

 private:
  const json* required(const char* key) {
    const auto found = object_.find(key);
    if (found != object_.end()) return &*found;
    wrong(key, "is missing");
    return nullptr;
  }

  std::optional<double> as_number(const char* key, const json* value) {
    if (value == nullptr || value->is_null()) return std::nullopt;
    if (!value->is_number()) {
      wrong(key, "is not a number");
      return std::nullopt;
    }
    const auto number = value->get<double>();
    if (std::isfinite(number) && std::abs(number) > kMaxFigure) {
      wrong(key, fmt::format("is {:.3g}, which is impossible", number));
      return std::nullopt;
    }
    return std::isfinite(number) ? std::optional(number) : std::nullopt;
  }

  std::optional<double> not_negative(const char* key, std::optional<double> value) {
    if (!value || *value >= 0) return value;
    wrong(key, "is negative");
    return std::nullopt;
  }

  // Rounding may leave a value slightly above 1.
  std::optional<double> at_most_one(const char* key, std::optional<double> value) {
    if (!value || *value <= 1 + 1e-6) return value;
    wrong(key, "is more than 1");
    return std::nullopt;
  }

  std::string as_text(const char* key, const json* value) {
    if (value == nullptr || value->is_null()) return {};
    if (value->is_string() && value->get_ref<const std::string&>().size() <= kMaxText) {
      return value->get<std::string>();
    }
    wrong(key, fmt::format("is not a string of at most {} bytes", kMaxText));
    return {};
  }

  // Discards the problems of a missing object: its keys must not be reported as missing, too.
  Problems* scratch() { return &scratch_; }

  const json& object_;
  std::string prefix_;
  Problems& problems_;
  Problems scratch_;
};

// Separates `waiting` from exposed_comm, which includes it in run.json.
void take_waiting(StepSeconds& step, Reader& reader) {
  auto& waiting = step.parts[index_of(Phase::waiting)];
  waiting = reader.amount_if_there("waiting");
  auto& exposed = step.parts[index_of(Phase::exposed_comm)];
  if (!waiting) return;
  if (*waiting > exposed.value_or(0) * (1 + 1e-6) + 1e-9) {
    reader.wrong("waiting", "is larger than 'exposed_comm', which includes it");
    return;
  }
  exposed = std::max(exposed.value_or(0) - *waiting, 0.0);
}

StepSeconds read_step_seconds(Reader reader) {
  StepSeconds step;
  step.p50 = reader.amount("p50");
  step.p95 = reader.amount("p95");
  step.mean = reader.amount_if_there("mean");
  double sum = 0;
  bool any = false;
  for (const auto& [phase, key, name, brief] : kPhaseNames) {
    if (phase == Phase::waiting) continue;
    auto& part = step.parts[index_of(phase)];
    part = phase == Phase::other ? reader.number("other") : reader.amount(std::string(key).c_str());
    any = any || part.has_value();
    sum += part.value_or(0);
  }
  // The remainder combines two clock readings and may come out slightly below zero.
  auto& other = step.parts[index_of(Phase::other)];
  if (other && *other < -0.01 * sum) reader.wrong("other", "is negative");
  if (!step.mean && any) step.mean = sum;
  take_waiting(step, reader);
  return step;
}

// Parses "0-3,8"; empty for anything else.
std::vector<int> processors_of(const std::string& list) {
  std::vector<int> processors;
  const char* at = list.data();
  const char* const end = at + list.size();
  while (at != end) {
    int first = 0;
    auto found = std::from_chars(at, end, first);
    int last = first;
    if (found.ec == std::errc() && found.ptr != end && *found.ptr == '-') {
      found = std::from_chars(found.ptr + 1, end, last);
    }
    const char* const next = found.ptr;
    const bool sound = found.ec == std::errc() && (next == end || *next == ',') && first >= 0 &&
                       last >= first && last < kMaxProcessors &&
                       (processors.empty() || first > processors.back());
    if (!sound) return {};
    for (int cpu = first; cpu <= last; ++cpu) processors.push_back(cpu);
    at = next == end ? end : next + 1;
  }
  return processors;
}

RankRecord read_rank(Reader& rank) {
  RankRecord record;
  record.rank = static_cast<int>(std::clamp(rank.number("rank").value_or(-1), -1.0, 1e9));
  record.node = rank.text("node");
  record.step = read_step_seconds(rank.object("step_seconds"));
  record.processors = processors_of(rank.text_if_there("cpu_list"));
  if (const auto threads = rank.amount_if_there("threads")) {
    record.threads = static_cast<int>(std::min(*threads, 1e6));
  }
  record.late_share = rank.fraction_if_there("late_share");
  record.compared_steps = rank.amount_if_there("compared_steps");
  record.preemptions = rank.amount_if_there("involuntary_switches_per_second");
  record.peak_memory_bytes = rank.amount_if_there("peak_memory_bytes");
  return record;
}

std::vector<RankRecord> read_ranks(Reader& reader, int world_size, Problems& problems) {
  std::vector<RankRecord> ranks;
  const json* list = reader.list("ranks", kMaxRanks);
  if (list == nullptr) return ranks;
  std::set<int> seen;
  for (const auto& entry : *list) {
    if (!entry.is_object()) {
      reader.wrong("ranks", "has an entry that is not an object");
      break;
    }
    const std::string place = fmt::format("ranks[{}].", ranks.size());
    Reader rank(entry, place, problems);
    ranks.push_back(read_rank(rank));
    const int number = ranks.back().rank;
    if (number < 0 || number >= world_size) {
      rank.wrong("rank", fmt::format("is not a rank in a world of {}", world_size));
    } else if (!seen.insert(number).second) {
      rank.wrong("rank", fmt::format("is {}, which another entry already has", number));
    }
  }
  return ranks;
}

// For a run that did not measure waiting: the excess of a rank's exposed communication over that of
// the rank with the least is assumed to be waiting for that rank. This is exact only if the same
// rank was last in every step.
void estimate_waiting(RunRecord& run) {
  const auto place = index_of(Phase::exposed_comm);
  if (run.step.parts[index_of(Phase::waiting)] || !run.step.parts[place]) return;
  if (run.world_size < 2 || run.ranks.size() != static_cast<std::size_t>(run.world_size)) return;
  double least = *run.step.parts[place];
  for (const auto& rank : run.ranks) {
    if (!rank.step.parts[place] || rank.step.parts[index_of(Phase::waiting)]) return;
    least = std::min(least, *rank.step.parts[place]);
  }
  const auto split = [&](StepSeconds& step) {
    step.parts[index_of(Phase::waiting)] = *step.parts[place] - least;
    step.parts[place] = least;
  };
  for (auto& rank : run.ranks) split(rank.step);
  split(run.step);
  run.waiting_estimated = true;
}

WallSeconds read_wall(const json& run, Problems& problems) {
  WallSeconds wall;
  const auto found = run.find("wall_seconds");
  if (found == run.end() || !found->is_object()) return wall;
  Reader reader(*found, "wall_seconds.", problems);
  wall.total = reader.amount_if_there("total");
  wall.startup = reader.amount_if_there("startup");
  wall.steps = reader.amount_if_there("steps");
  wall.evaluation = reader.amount_if_there("evaluation");
  wall.checkpoint = reader.amount_if_there("checkpoint");
  wall.rest = reader.number_if_there("rest");
  return wall;
}

Coverage read_coverage(const json& run, Problems& problems) {
  Coverage covers;
  const auto found = run.find("covers");
  if (found == run.end() || !found->is_object()) return covers;
  Reader reader(*found, "covers.", problems);
  covers.first_step = reader.amount_if_there("first_step");
  covers.last_step = reader.amount_if_there("last_step");
  covers.rows_missing = reader.amount_if_there("rows_missing").value_or(0);
  const auto earlier = found->find("earlier");
  if (earlier != found->end() && earlier->is_array()) covers.earlier_processes = earlier->size();
  return covers;
}

ShardingRecord read_sharding(const json& run, Problems& problems) {
  ShardingRecord sharding;
  const auto found = run.find("sharding");
  if (found == run.end() || !found->is_object()) return sharding;
  Reader reader(*found, "sharding.", problems);
  sharding.strategy = reader.text_if_there("strategy");
  sharding.divided_by = reader.amount_if_there("divided_by");
  sharding.bytes_between_steps = reader.amount_if_there("predicted_bytes_between_steps");
  sharding.bytes_in_step = reader.amount_if_there("predicted_bytes_in_step");
  sharding.bytes_sent_per_step = reader.amount_if_there("predicted_bytes_sent_per_step");
  sharding.measured_peak_bytes = reader.amount_if_there("measured_peak_bytes");
  return sharding;
}

// The values of an object as text. Leaves out nested values.
std::map<std::string, std::string> read_texts(const json& object) {
  std::map<std::string, std::string> texts;
  for (const auto& [name, value] : object.items()) {
    if (value.is_string()) {
      texts[name.substr(0, kMaxText)] = value.get<std::string>().substr(0, kMaxText);
    } else if (value.is_primitive()) {
      texts[name.substr(0, kMaxText)] = value.dump();
    }
  }
  return texts;
}

std::map<std::string, std::string> read_settings(const json& run) {
  const auto found = run.find("settings");
  if (found == run.end() || !found->is_object()) return {};
  return read_texts(*found);
}

RunRecord read_fields(Reader& reader, Problems& problems) {
  RunRecord run;
  run.program = reader.text_if_there("program");
  run.command = reader.text_if_there("command");
  run.started_unix = reader.amount_if_there("started_unix");
  const std::size_t problems_before = problems.size();
  run.world_size = reader.count("world_size");
  const bool size_known = problems.size() == problems_before;
  run.nodes = reader.count("nodes");
  run.backend = reader.text("backend");
  run.device = reader.text("device");
  run.model = reader.text("model");
  run.data = reader.text("data");
  run.parameters = reader.amount("parameters");
  run.global_batch = reader.amount("global_batch");
  run.steps = reader.amount("steps");
  run.samples_per_second = reader.amount("samples_per_second");
  Reader final_values = reader.object("final");
  run.train_loss = final_values.number("train_loss");
  run.eval_loss = final_values.number("eval_loss");
  run.eval_accuracy = final_values.fraction("eval_accuracy");
  run.parameters_crc32c = reader.text("parameters_crc32c");
  run.step = read_step_seconds(reader.object("step_seconds"));
  Reader comm = reader.object("comm");
  run.bytes_per_step = comm.amount("bytes_per_step");
  run.busbw_GBps = comm.amount("busbw_GBps");
  run.overlap_ratio = comm.fraction("overlap_ratio");
  run.ranks = read_ranks(reader, size_known ? run.world_size : kAnyNumberOfRanks, problems);
  run.outcome = reader.text_if_there("outcome");
  run.outcome_reason = reader.text_if_there("outcome_reason");
  run.wall = read_wall(reader.raw(), problems);
  run.covers = read_coverage(reader.raw(), problems);
  run.sharding = read_sharding(reader.raw(), problems);
  try {
    run.pipeline = read_pipeline(reader.raw());
    run.resilience = read_resilience(reader.raw());
  } catch (const InputError& error) {
    problems.emplace_back(error.what());
  }
  run.settings = read_settings(reader.raw());
  run.environment = read_texts(reader.object("environment").raw());
  return run;
}

std::string read_text(const std::filesystem::path& file) {
  std::error_code error;
  const auto size = std::filesystem::file_size(file, error);
  if (error) throw InputError(fmt::format("cannot read {}: {}", file.string(), error.message()));
  if (size > kMaxBytes) {
    throw InputError(
        fmt::format("{} has {} bytes, which is too large for a run.json", file.string(), size));
  }
  std::ifstream stream(file, std::ios::binary);
  std::string text(size, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(size));
  if (!stream) throw InputError(fmt::format("cannot read {}", file.string()));
  return text;
}

void require_none(const Problems& problems, const std::string& source) {
  if (problems.empty()) return;
  const std::size_t told = std::min(problems.size(), kMaxProblemsReported);
  std::string text =
      fmt::format("{}: {}", source,
                  fmt::join(problems.begin(), problems.begin() + static_cast<long>(told), "; "));
  if (told < problems.size()) text += fmt::format("; and {} more", problems.size() - told);
  throw InputError(text);
}

}  // namespace

bool have_alike_waiting(const RunRecord& a, const RunRecord& b) {
  return a.world_size == 1 || b.world_size == 1 || a.waiting_estimated == b.waiting_estimated;
}

std::optional<double> StepSeconds::unaccounted() const {
  if (!mean) return std::nullopt;
  double rest = *mean;
  for (const auto& part : parts) rest -= part.value_or(0);
  return std::abs(rest) > 0.01 * std::abs(*mean) ? std::optional(rest) : std::nullopt;
}

RunRecord parse_run(std::string_view text, const std::string& source) {
  json document;
  try {
    document = parse_bounded_json(text);
  } catch (const JsonError& error) {
    throw InputError(fmt::format("{}: {}", source, error.what()));
  }
  if (!document.is_object()) throw InputError(source + " is not a JSON object");
  Problems problems;
  Reader reader(document, "", problems);
  if (const auto schema = reader.text("schema"); problems.empty() && schema != kSchema) {
    throw InputError(fmt::format("{} has the schema '{}', not {}", source, schema, kSchema));
  }
  RunRecord run = read_fields(reader, problems);
  require_none(problems, source);
  estimate_waiting(run);
  run.source = source;
  return run;
}

RunRecord read_run(const std::string& path) {
  std::error_code error;
  const bool is_directory = std::filesystem::is_directory(path, error);
  const auto file =
      is_directory ? std::filesystem::path(path) / "run.json" : std::filesystem::path(path);
  if (!std::filesystem::exists(file, error)) {
    throw InputError(is_directory
                         ? fmt::format("{} has no run.json; give the --report-dir of a run", path)
                         : fmt::format("{} does not exist", path));
  }
  RunRecord run = parse_run(read_text(file), file.string());
  run.source = path;
  return run;
}

}  // namespace ddp::report
