#include "ddp_runtime/train/run_report.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>

#include "ddp_runtime/comm/errors.h"
#include "hdf5_ckpt/crc32c.h"

namespace ddp::train {
namespace {

using nlohmann::json;

// Connections, first allocations and lazily built kernels make the first steps slow.
constexpr std::size_t kWarmupSteps = 5;

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

// The largest resident set so far.
std::int64_t peak_memory_bytes() {
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

// An allow-list: the whole environment would carry people's secrets into a file that is mailed.
json environment() {
  json variables = json::object();
  for (const char* name :
       {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEP_NODELIST", "SLURM_RESTART_COUNT",
        "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS"}) {
    if (const char* value = std::getenv(name)) variables[name] = value;
  }
  return variables;
}

json seconds_of(const profile::StepSummary& summary) {
  json seconds = {{"p50", summary.p50}, {"p95", summary.p95}, {"mean", summary.mean}};
  for (std::size_t p = 0; p < profile::kPhases; ++p) {
    seconds[std::string(to_string(static_cast<profile::Phase>(p)))] = summary.phase_means[p];
  }
  seconds["other"] = summary.other_mean;
  return seconds;
}

// Means over ranks keep the parts summing to the mean; the percentiles are those of the slowest.
json over_ranks(const json& ranks) {
  json result;
  for (const auto& [key, value] : ranks.at(0).at("step_seconds").items()) {
    double sum = 0;
    double largest = 0;
    for (const auto& rank : ranks) {
      const double seconds = rank.at("step_seconds").at(key).get<double>();
      sum += seconds;
      largest = std::max(largest, seconds);
    }
    const bool percentile = key == "p50" || key == "p95";
    result[key] = percentile ? largest : sum / static_cast<double>(ranks.size());
  }
  return result;
}

json communication(const profile::StepSummary& summary, int world_size) {
  json comm = {{"bytes_per_step", summary.communication_bytes},
               {"busbw_GBps", nullptr},
               {"overlap_ratio", nullptr}};
  if (summary.communication_seconds <= 0) return comm;
  // Ring-equivalent: what each rank must send and receive for an all-reduce of that many bytes.
  const double factor = 2.0 * (world_size - 1) / world_size;
  comm["busbw_GBps"] = summary.communication_bytes * factor / summary.communication_seconds / 1e9;
  comm["overlap_ratio"] = summary.hidden_seconds / summary.communication_seconds;
  return comm;
}

void write_file(const std::filesystem::path& file, const std::string& contents) {
  const auto temporary = file.string() + ".tmp";
  {
    std::ofstream stream(temporary, std::ios::binary);
    stream << contents;
    stream.flush();
    if (!stream) {
      throw RuntimeError(fmt::format("cannot write {}: {}", temporary, std::strerror(errno)));
    }
  }
  std::filesystem::rename(temporary, file);
}

std::string steps_csv(const std::vector<StepLoss>& losses) {
  std::string csv = "step,epoch,loss,learning_rate,seconds\n";
  for (const auto& s : losses) {
    csv += fmt::format("{},{},{:.9g},{:.9g},{:.6f}\n", s.step, s.epoch, s.loss, s.learning_rate,
                       s.seconds);
  }
  return csv;
}

}  // namespace

std::uint32_t parameters_crc32c(std::vector<NamedTensor> parameters) {
  std::sort(parameters.begin(), parameters.end(),
            [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; });
  std::uint32_t crc = 0;
  for (const auto& [name, tensor] : parameters) {
    const auto values = tensor.detach().to(torch::kCPU, torch::kFloat32).contiguous();
    crc = ckpt::crc32c({static_cast<const std::byte*>(values.data_ptr()), values.nbytes()}, crc);
  }
  return crc;
}

json make_run_report(comm::Group& group, const RunFacts& facts, const RunOutcome& outcome,
                     const std::vector<profile::StepRecord>& steps) {
  const auto summary = profile::summarise(steps, kWarmupSteps);
  const json mine = {{"rank", group.rank()},
                     {"node", host_name()},
                     {"peak_memory_bytes", peak_memory_bytes()},
                     {"step_seconds", seconds_of(summary)}};
  json ranks = json::array();
  for (const auto& text : group.all_gather_text(mine.dump())) ranks.push_back(json::parse(text));
  if (group.rank() != 0) return nullptr;

  std::set<std::string> nodes;
  for (const auto& rank : ranks) nodes.insert(rank.at("node").get<std::string>());
  const json seconds = over_ranks(ranks);
  const double mean = seconds.at("mean").get<double>();
  const auto now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch());
  const auto& evaluation = outcome.evaluation;
  return {{"schema", "slurm-ddp/run/1"},
          {"program", facts.program},
          {"command", facts.command},
          {"started_unix", facts.started_unix},
          {"finished_unix", now.count()},
          {"world_size", group.size()},
          {"nodes", nodes.size()},
          {"backend", group.backend()},
          {"device", "cpu"},
          {"model", facts.model},
          {"data", facts.data},
          {"parameters", facts.parameters},
          {"global_batch", facts.global_batch},
          {"epochs", facts.epochs},
          {"steps", outcome.steps},
          {"samples_per_second",
           mean > 0 ? json(static_cast<double>(facts.global_batch) / mean) : json(nullptr)},
          {"final",
           {{"train_loss", outcome.train_loss},
            {"eval_loss", evaluation ? json(evaluation->loss) : json(nullptr)},
            {"eval_accuracy", evaluation ? json(evaluation->accuracy) : json(nullptr)},
            {"best_eval_loss",
             outcome.best_eval_loss ? json(*outcome.best_eval_loss) : json(nullptr)}}},
          {"parameters_crc32c", fmt::format("0x{:08x}", outcome.parameters_crc32c)},
          {"step_seconds", seconds},
          {"comm", communication(summary, group.size())},
          {"ranks", ranks},
          {"environment", environment()}};
}

void write_run_files(const std::filesystem::path& directory, const json& report,
                     const std::vector<StepLoss>& losses, const std::string& trace) {
  write_file(directory / "steps.csv", steps_csv(losses));
  write_file(directory / "trace.json", trace);
  write_file(directory / "run.json", report.dump(2) + "\n");
}

}  // namespace ddp::train
