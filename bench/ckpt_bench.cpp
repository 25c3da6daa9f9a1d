// SPDX-License-Identifier: Apache-2.0
#include "bench/ckpt_bench.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "base/errors.h"
#include "bench/child_process.h"
#include "bench/raw_disk.h"
#include "bench/statistics.h"
#include "ddp_runtime/profile/process_memory.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "hdf5_ckpt/write/async_saver.h"

namespace ddp::bench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr unsigned kThreads = 2;  // for raw writers and readers, and for the bare copy
constexpr std::size_t kPage = 4096;
constexpr std::size_t kTinyArrays = 10000;

double seconds_of(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Arrays with the shapes of a transformer's parameters: four matrices and their biases per layer.
class State {
 public:
  explicit State(std::int64_t mib) : bytes_(static_cast<std::size_t>(mib) << 20) {
    storage_.resize(bytes_ + kPage);
    std::mt19937_64 random(1);
    for (std::size_t at = 0; at + sizeof(std::uint64_t) <= storage_.size(); at += 8) {
      const std::uint64_t value = random();
      std::memcpy(storage_.data() + at, &value, sizeof value);
    }
    std::size_t at = 0;
    while (at < bytes_) {
      add(at, kMatrix);
      add(at, kBias);
    }
  }

  const std::vector<ckpt::ArrayView>& arrays() const { return arrays_; }
  std::span<const std::byte> bytes() const { return {aligned(), bytes_}; }
  std::size_t size() const { return bytes_; }

 private:
  static constexpr std::size_t kMatrix = 4 << 20;
  static constexpr std::size_t kBias = 4096;

  const std::byte* aligned() const {
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
    return storage_.data() + (kPage - address % kPage) % kPage;
  }

  void add(std::size_t& at, std::size_t size) {
    size = std::min(size, bytes_ - at);
    if (size == 0) return;
    arrays_.push_back({fmt::format("model/layer{}.weight", arrays_.size()),
                       ckpt::DType::float32,
                       {size / 4},
                       {aligned() + at, size}});
    at += size;
  }

  std::size_t bytes_;
  std::vector<std::byte> storage_;
  std::vector<ckpt::ArrayView> arrays_;
};

// A subdirectory of the directory to measure; the destructor removes it.
class Workplace {
 public:
  explicit Workplace(const fs::path& directory)
      : path_(fs::absolute(directory) / fmt::format("ddp-bench-ckpt-{}", ::getpid())) {
    std::error_code error;
    fs::create_directories(path_, error);
    if (error)
      throw RuntimeError(fmt::format("cannot create {}: {}", path_.string(), error.message()));
  }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;
  ~Workplace() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }
  // Removes all files and flushes earlier writes, so that the disk is idle.
  void clear() const {
    for (const auto& entry : fs::directory_iterator(path_)) fs::remove_all(entry.path());
    ::sync();
  }

 private:
  fs::path path_;
};

const ckpt::OwnerTag kOwner = {"bench", 0, "host", 1};

using Times = std::map<std::string, std::vector<double>>;

class Bench {
 public:
  Bench(const CkptBenchOptions& options)
      : options_(options), state_(options.mib), place_(options.directory) {
    if (options.with_python) start_python();
  }

  json run() {
    warm_up();
    for (std::int64_t round = 0; round < options_.rounds; ++round) {
      auto writers = all_writers();
      std::rotate(writers.begin(),
                  writers.begin() + round % static_cast<std::int64_t>(writers.size()),
                  writers.end());
      for (const auto& write : writers) {
        place_.clear();
        write();
      }
      measure_loads(round % 2 != 0);
    }
    measure_memory();
    measure_tiny();
    return result();
  }

 private:
  std::vector<std::function<void()>> all_writers() {
    std::vector<std::function<void()>> writers = {
        [this] {
          note("raw O_DIRECT, 1 thread", [this] { write_raw(raw(), state_.bytes(), 1, true); });
        },
        [this] {
          note("raw O_DIRECT, 2 threads",
               [this] { write_raw(raw(), state_.bytes(), kThreads, true); });
        },
        [this] {
          note("raw buffered, 2 threads",
               [this] { write_raw(raw(), state_.bytes(), kThreads, false); });
        },
        [this] { note("ours", [this] { save(state_.arrays()); }); }, [this] { measure_async(); }};
    for (const auto& kind : python_kinds_) {
      writers.emplace_back([this, kind] {
        python_->write_line(json{{"write", kind}}.dump());
        const auto answer = json::parse(python_->read_line());
        durable_[kind].push_back(answer.at("durable"));
        returned_[kind].push_back(answer.at("returned"));
      });
    }
    return writers;
  }

  fs::path raw() const { return place_.path() / "raw"; }

  void note(const std::string& name, const std::function<void()>& work) {
    durable_[name].push_back(seconds_of(work));
  }

  void save(std::span<const ckpt::ArrayView> arrays) {
    ckpt::CheckpointDirectory(place_.path() / "ckpt").save(1, kOwner, arrays, {});
  }

  // The runtime must not be charged for the first touch of memory pages.
  void warm_up() {
    copy_.resize(state_.size());
    bare_copy_.resize(state_.size());
    copy_once();
    place_.clear();
    saver_.start(state_.arrays(), [this](auto arrays) { save(arrays); });
    saver_.wait();
  }

  // The two copies take turns going first. Each goes into memory last used one round ago,
  // because idle memory is slower in a virtual machine.
  void measure_async() {
    const bool bare_first = copy_seconds_.size() % 2 == 0;
    if (bare_first) copy_seconds_.push_back(seconds_of([this] { copy_once(); }));
    const auto begin = Clock::now();
    stalls_.push_back(seconds_of(
        [this] { saver_.start(state_.arrays(), [this](auto arrays) { save(arrays); }); }));
    saver_.wait();
    durable_["ours, asynchronous"].push_back(
        std::chrono::duration<double>(Clock::now() - begin).count());
    if (!bare_first) copy_seconds_.push_back(seconds_of([this] { copy_once(); }));
  }

  // Uses as many threads as the snapshot, to measure a lower bound for the time of a copy.
  void copy_once() {
    std::vector<std::jthread> helpers;
    const std::size_t half = state_.size() / kThreads;
    for (unsigned i = 0; i < kThreads; ++i) {
      helpers.emplace_back([&, i] {
        std::memcpy(bare_copy_.data() + i * half, state_.bytes().data() + i * half, half);
      });
    }
  }

  // The raw read and ours take turns going first, because disks of virtual machines slow down
  // after much work.
  void measure_loads(bool ours_first) {
    if (ours_first) measure_own_load();
    measure_raw_read();
    if (!ours_first) measure_own_load();
  }

  void measure_raw_read() {
    place_.clear();
    write_raw(raw(), state_.bytes(), kThreads, true);
    auto* const aligned =
        copy_.data() + (kPage - reinterpret_cast<std::uintptr_t>(copy_.data()) % kPage) % kPage;
    const std::span<std::byte> target(aligned, state_.size() - kPage);
    drop_pages(raw());
    loads_["raw read"].push_back(seconds_of([&] { read_raw(raw(), target, kThreads); }));
  }

  void measure_own_load() {
    place_.clear();
    save(state_.arrays());
    const auto checkpoint = place_.path() / "ckpt" / ckpt::step_directory_name(1);
    drop_pages(checkpoint / "model.h5");
    std::vector<ckpt::MutableArrayView> targets;
    std::size_t at = 0;
    for (const auto& array : state_.arrays()) {
      targets.push_back(
          {array.name, array.dtype, array.shape, {copy_.data() + at, array.bytes.size()}});
      at += array.bytes.size();
    }
    loads_["ours"].push_back(seconds_of([&] {
      const auto opened = ckpt::Checkpoint::open(checkpoint);
      opened.verify_metadata();
      opened.read_into(targets);
    }));
    if (std::memcmp(copy_.data(), state_.bytes().data(), state_.size()) != 0) {
      throw RuntimeError("the loaded data differ from the saved data");
    }
  }

  // Memory growth since just before the first save, including the pool.
  void measure_memory() {
    place_.clear();
    const auto before = profile::process_memory();
    profile::reset_peak_memory();
    ckpt::AsyncSaver fresh;
    fresh.start(state_.arrays(), [this](auto arrays) { save(arrays); });
    fresh.wait();
    const auto after = profile::process_memory();
    extra_bytes_ = after.peak - before.anonymous - before.shared - before.file;
  }

  void measure_tiny() {
    std::vector<float> values(kTinyArrays * 16, 1.0F);
    const auto bytes = std::as_bytes(std::span(values));
    std::vector<ckpt::ArrayView> tiny;
    for (std::size_t i = 0; i < kTinyArrays; ++i) {
      tiny.push_back({fmt::format("model/layer{}.bias", i),
                      ckpt::DType::float32,
                      {16},
                      bytes.subspan(i * 64, 64)});
    }
    for (std::int64_t round = 0; round < options_.rounds; ++round) {
      place_.clear();
      tiny_.push_back(seconds_of([&] { save(tiny); }));
    }
  }

  void start_python() {
    std::string script = SLURM_DDP_BENCH_SOURCE "/python_ckpt_peer.py";
    const auto program = fs::read_symlink("/proc/self/exe");
    const auto installed =
        program.parent_path().parent_path() / SLURM_DDP_BENCH_INSTALLED / "python_ckpt_peer.py";
    if (fs::exists(installed)) script = installed;
    json names = json::array();
    json shapes = json::array();
    for (const auto& array : state_.arrays()) {
      names.push_back(array.name);
      shapes.push_back(array.shape);
    }
    try {
      python_ = std::make_unique<ChildProcess>(std::vector<std::string>{options_.python, script});
      python_->write_line(
          json{{"names", names}, {"shapes", shapes}, {"directory", place_.path()}}.dump());
      const auto answer = json::parse(python_->read_line());
      if (answer.contains("error")) {
        missing_ = answer.at("error");
        return;
      }
      python_kinds_ = answer.at("kinds").get<std::vector<std::string>>();
    } catch (const RuntimeError& error) {
      missing_ = error.what();
    }
  }

  json rates(const std::vector<double>& seconds, const std::vector<double>& limit) const {
    const double bytes = static_cast<double>(state_.size());
    return {{"seconds", percentiles(seconds)},
            {"GBps", bytes / median(seconds) / 1e9},
            {"of_raw", median(limit) / median(seconds)},
            {"of_raw_per_round", percentiles(block_ratios(limit, seconds, 1))}};
  }

  json result() {
    const auto& limit = best_of_raw();
    json compared;
    for (const auto& [name, seconds] : durable_) compared[name] = rates(seconds, limit);
    for (const auto& [name, seconds] : returned_) {
      compared[name]["returned_seconds"] = percentiles(seconds);
    }
    const auto& ours = durable_.at("ours");
    json out = {{"benchmark", "ckpt"},
                {"bytes", state_.size()},
                {"arrays", state_.arrays().size()},
                {"rounds", options_.rounds},
                {"directory", options_.directory},
                {"durable_seconds", percentiles(ours)},
                {"stall_seconds", percentiles(stalls_)},
                {"stall_over_copy", median(stalls_) / median(copy_seconds_)},
                {"stall_over_copy_per_round", percentiles(block_ratios(stalls_, copy_seconds_, 1))},
                {"write_GBps", static_cast<double>(state_.size()) / median(ours) / 1e9},
                {"load_seconds", percentiles(loads_.at("ours"))},
                {"load_of_raw_read", median(loads_.at("raw read")) / median(loads_.at("ours"))},
                {"load_of_raw_read_per_round",
                 percentiles(block_ratios(loads_.at("raw read"), loads_.at("ours"), 1))},
                {"extra_memory_over_state",
                 static_cast<double>(extra_bytes_) / static_cast<double>(state_.size())},
                {"tiny_arrays", kTinyArrays},
                {"tiny_seconds", percentiles(tiny_)},
                {"compared", compared}};
    if (durable_.contains("torch.save")) {
      out["speedup_over_torch_save"] = median(durable_.at("torch.save")) / median(ours);
    }
    if (!missing_.empty()) out["missing"] = missing_;
    return out;
  }

  const std::vector<double>& best_of_raw() const {
    const auto& one = durable_.at("raw O_DIRECT, 1 thread");
    const auto& two = durable_.at("raw O_DIRECT, 2 threads");
    return median(one) < median(two) ? one : two;
  }

  CkptBenchOptions options_;
  State state_;
  Workplace place_;
  ckpt::AsyncSaver saver_;
  std::unique_ptr<ChildProcess> python_;
  std::vector<std::string> python_kinds_;
  std::string missing_;
  std::vector<std::byte> copy_;       // the loaded state
  std::vector<std::byte> bare_copy_;  // copy of the state made by memcpy
  Times durable_;
  Times returned_;
  Times loads_;
  std::vector<double> stalls_;
  std::vector<double> copy_seconds_;
  std::vector<double> tiny_;
  std::int64_t extra_bytes_ = 0;
};

}  // namespace

json run_ckpt_bench(const CkptBenchOptions& options) {
  return Bench(options).run();
}

}  // namespace ddp::bench
