// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/node/run_node_checks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <fstream>
#include <functional>
#include <future>
#include <sstream>
#include <utility>

#include "base/errors.h"
#include "base/host.h"
#include "base/subprocess.h"
#include "base/visible_devices.h"
#include "ddp_runtime/check/findings/byte_units.h"
#include "ddp_runtime/check/findings/counters_check.h"
#include "ddp_runtime/check/findings/resolve.h"
#include "ddp_runtime/check/node/clock_check.h"
#include "ddp_runtime/check/node/gpu/gpu_check.h"
#include "ddp_runtime/check/node/gpu/gpus_without_driver.h"
#include "ddp_runtime/check/node/host_name_check.h"
#include "ddp_runtime/check/node/hugepages_check.h"
#include "ddp_runtime/check/node/infiniband_check.h"
#include "ddp_runtime/check/node/infiniband_kind.h"
#include "ddp_runtime/check/node/limits_check.h"
#include "ddp_runtime/check/node/memory_check.h"
#include "ddp_runtime/check/node/processor_check.h"
#include "ddp_runtime/check/node/running_jobs.h"
#include "ddp_runtime/check/node/storage_check.h"
#include "spank_plugin/fabric/node/gpu.h"
#include "spank_plugin/fabric/node/node.h"

namespace ddp::check {
namespace {

std::string read_meminfo(const NodeOptions& options) {
  std::ifstream file(options.root / "proc/meminfo");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<StorageRule> storage_rules(const std::vector<std::string>& directories) {
  std::vector<StorageRule> rules{
      {"storage.shm", "/dev/shm", 1024 * kMiB, 64 * kMiB,
       "loaders and MPI pass data through /dev/shm"},
      {"storage.tmp", "/tmp", 1024 * kMiB, 64 * kMiB, "MPI and libraries keep files in /tmp"}};
  for (const auto& directory : directories) {
    rules.push_back({"storage.dir", directory, 1024 * kMiB, 64 * kMiB,
                     "the --dir directory receives checkpoints"});
  }
  return rules;
}

using Check = std::function<std::vector<Finding>()>;

// A check that fails to run must produce a finding, because no finding would mean a healthy node.
std::vector<Finding> guarded(const std::string& name, const Check& check) {
  try {
    return check();
  } catch (const std::exception& error) {
    return {Finding{.check = name,
                    .severity = Severity::unknown,
                    .evidence = fmt::format("the check failed to run: {}", error.what()),
                    .action = "run the check on the node itself, with the required permissions"}};
  }
}

// The slow checks run in parallel, so that they take one timeout in total.
std::vector<Finding> slow_checks(const NodeOptions& options, bool job_runs, bool& left_behind) {
  const std::string name = host_name();
  auto resolution = std::async(std::launch::async, resolve, name, options.timeout);
  std::vector<std::pair<StorageRule, std::future<StorageFacts>>> probes;
  for (auto& rule : storage_rules(options.directories)) {
    auto facts = std::async(std::launch::async, probe_storage, rule.directory, options.timeout);
    probes.emplace_back(std::move(rule), std::move(facts));
  }
  const Resolution resolved = resolution.get();
  left_behind = resolved.timed_out;
  std::vector<Finding> findings{evaluate_host_name(resolved)};
  for (auto& [rule, future] : probes) {
    const StorageFacts facts = future.get();
    left_behind = left_behind || facts.timed_out;
    findings.push_back(evaluate_storage(facts, rule, job_runs));
  }
  return findings;
}

// Without this error, the node would seem to have no interfaces, which is a different fault.
void require_readable(const std::filesystem::path& dir) {
  std::error_code error;
  const std::filesystem::directory_iterator entries(dir, error);
  if (error) throw RuntimeError(fmt::format("cannot read {}: {}", dir.string(), error.message()));
}

// A node without such devices does not have this directory.
void require_readable_if_there(const std::filesystem::path& dir) {
  std::error_code error;
  if (std::filesystem::exists(std::filesystem::symlink_status(dir, error))) {
    require_readable(dir);
  }
}

// Returns the output of the driver's library, or the reason why there is none.
NvmlFacts gather(Subprocess& asked, Deadline deadline) {
  const SubprocessOutput output = asked.wait(deadline);
  NvmlFacts facts;
  facts.trouble = output.timed_out ? "the driver did not answer in time" : "its library crashed";
  if (output.timed_out || output.exit_code != 0) return facts;
  return nvml_facts_from(output.text);
}

GpuExpectations expectations_of_gpus(const NodeOptions& options, const Environment& environment) {
  GpuExpectations expected;
  expected.wanted = gpus_wanted(environment);
  for (const auto& gpu : fabric::read_gpus(options.root)) {
    ++(gpu.driver == "nvidia" ? expected.nvidia_in_kernel : expected.others_in_kernel);
  }
  const std::string job = environment("SLURM_JOB_ID").value_or("");
  expected.all_visible = job.empty();
  expected.is_own = [job](int pid) { return is_of_job(pid, job); };
  expected.without_driver = count_gpus_without_driver(options.root);
  if (const auto visible = environment("CUDA_VISIBLE_DEVICES")) {
    const auto devices = visible_devices(*visible);
    expected.listed = static_cast<int>(devices.size());
    expected.mig_listed = std::any_of(devices.begin(), devices.end(),
                                      [](auto device) { return device.starts_with("MIG-"); });
  }
  return expected;
}

std::vector<Finding> gpu_findings(const NodeOptions& options, const GpuExpectations& expected,
                                  const NvmlFacts& facts) {
  std::vector<Finding> findings = evaluate_gpus(facts, expected);
  if (findings.empty()) return findings;
  const auto log = read_kernel_log(options.kernel_log);
  for (auto& finding : evaluate_xids(log.value_or(""))) findings.push_back(std::move(finding));
  return findings;
}

// Copies data if requested. Results of both libraries go to the verdict's measurements.
std::vector<Finding> findings_about_gpus(const NodeOptions& options, const Environment& environment,
                                         NvmlFacts facts, Verdict& verdict) {
  const GpuExpectations expected = expectations_of_gpus(options, environment);
  std::vector<Finding> findings;
  if (options.gpu_copies) {
    CopyOptions copies = options.copies;
    copies.nvml_library = options.nvml_library;
    copies.busy = gpus_of_others(facts, expected);
    const CopyFacts copied = measure_copies(copies);
    enter_loaded_links(copied, facts);
    verdict.measurements["gpu_copies"] = json_of(copied);
    findings = evaluate_copies(copied);
  }
  verdict.notes = gpu_notes(facts, expected);
  if (!facts.gpus.empty()) {
    verdict.measurements["gpus"] = nlohmann::json::parse(to_text(facts));
  }
  std::vector<Finding> all = gpu_findings(options, expected, facts);
  all.insert(all.end(), findings.begin(), findings.end());
  return all;
}

// Without the configuration files of a user: the checks concern the node.
fabric::Node read_fabric(const NodeOptions& options) {
  return fabric::read_node({options.root, {}, {}}, {});
}

std::vector<std::pair<std::string, Check>> quick_checks(const NodeOptions& options,
                                                        const Environment& environment,
                                                        bool job_runs) {
  return {
      {"interface",
       [&options] {
         require_readable(options.sys / "class/net");
         const fabric::Node node = read_fabric(options);
         return evaluate_interfaces(node, fabric::choose_compute_ports(node), options.interfaces);
       }},
      {"infiniband",
       [&options] {
         require_readable_if_there(options.sys / "class/infiniband");
         const fabric::Node node = read_fabric(options);
         return evaluate_infiniband(node, fabric::choose_compute_ports(node));
       }},
      {"limits",
       [&options] { return evaluate_limits(read_limits(), uses_rdma(read_fabric(options))); }},
      {"cpu",
       [&environment] { return std::vector{evaluate_processors(read_processors(environment))}; }},
      {"memory",
       [&options, job_runs] {
         return std::vector{evaluate_memory(parse_meminfo(read_meminfo(options)), job_runs)};
       }},
      {"hugepages",
       [&options] { return evaluate_hugepages(parse_hugepages(read_meminfo(options))); }},
      {"clock", [] { return std::vector{evaluate_clock(read_clock())}; }}};
}

}  // namespace

NodeOutcome run_node_checks(const NodeOptions& options, const Environment& environment) {
  NodeOutcome outcome;
  std::vector<Finding> findings;
  // Starts first, while this process does not have other threads.
  const auto gpu_deadline = Clock::now() + options.gpu_timeout;
  Subprocess gpus =
      Subprocess::calling([&options] { return to_text(read_nvml(options.nvml_library)); });
  const auto append = [&findings](std::vector<Finding> more) {
    findings.insert(findings.end(), more.begin(), more.end());
  };
  const auto check_gpus = [&] {
    return findings_about_gpus(options, environment, gather(gpus, gpu_deadline), outcome.verdict);
  };
  if (options.gpu_copies) append(guarded("gpu", check_gpus));  // copies need a process, too
  const bool job_runs = a_job_runs(options.root, environment);
  for (const auto& [name, check] : quick_checks(options, environment, job_runs)) {
    append(guarded(name, check));
  }
  if (!options.counters_file.empty()) {
    append(guarded("counters", [&options] {
      return compare_with_kept_counters(options.counters_file, read_counters(options.sys));
    }));
  }
  append(guarded("storage", [&] { return slow_checks(options, job_runs, outcome.left_behind); }));
  if (!options.gpu_copies) append(guarded("gpu", check_gpus));
  for (auto& finding : findings) finding.node = options.node;

  Verdict& verdict = outcome.verdict;
  verdict.command = "node";
  verdict.nodes = {options.node};
  verdict.findings.add(std::move(findings));
  const std::size_t count = verdict.findings.all().size();
  verdict.summary = fmt::format("{}, {} checks", options.node, count);
  verdict.figures = {{"checks", static_cast<double>(count)}};
  return outcome;
}

}  // namespace ddp::check
