// SPDX-License-Identifier: Apache-2.0
// Xids: the errors of GPUs that NVIDIA's driver writes to the kernel's log. They tell what happened
// since the node started, and a GPU may have been reset since then, so each is only a WARNING. What
// a GPU needs now is told by the driver's readings, such as gpu.reset.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <utility>

#include "base/file_descriptor.h"
#include "ddp_runtime/check/node/gpu/gpu_check.h"

namespace ddp::check {
namespace {

constexpr int kRecoveryActionChanged = 154;

struct Failure {
  int number;
  const char* words;
};
// The Xids in NVIDIA's catalog that report a fault of the GPU, its memory, its links or its
// firmware, and not of a program. 13, 31, 43, 45 and most others are the fault of programs, or
// follow one of these.
constexpr auto kFailures = std::to_array<Failure>({
    {48, "uncorrectable memory error"},
    {61, "firmware halted"},
    {62, "firmware halted"},
    {64, "a bad row could not be remapped"},
    {74, "NVLink error"},
    {79, "fell off the bus"},
    {92, "many correctable memory errors"},
    {94, "contained memory error"},
    {95, "uncontained memory error"},
    {110, "security fault"},
    {119, "firmware does not answer"},
    {120, "firmware failed"},
    {121, "error of the link to the CPU"},
    {136, "an NVLink could not be trained"},
    {140, "unrecoverable memory error"},
    {143, "the GPU could not be initialized"},
    {144, "NVLink error (SAW)"},
    {145, "NVLink error (RLW)"},
    {146, "NVLink error (TLW)"},
    {147, "NVLink error (TREX)"},
    {148, "NVLink error (NVLPW)"},
    {149, "NVLink error (NETIR)"},
    {150, "NVLink error (MSE)"},
    {151, "encryption keys could not be rotated"},
    {kRecoveryActionChanged, "the driver requests a recovery"},
    {155, "NVLink error"},
    {156, "defective memory or units are retired at the next reset"},
    {157, "defective memory or units could not be retired"},
    {158, "fatal timeout"},
    {167, "fatal timeout of the PCIe link"},
    {168, "reduced memory"},
    {169, "firmware halted"},
    {171, "uncorrectable memory error (DRAM)"},
    {172, "uncorrectable memory error (SRAM)"},
});

// The words for an Xid; nullptr if it is not a failure. Errors of NVLinks from 144 to 150 say
// "Fatal", or "Nonfatal" if the link has recovered.
const char* failure_in(int number, std::string_view line) {
  const auto* const found =
      std::find_if(kFailures.begin(), kFailures.end(),
                   [number](const Failure& failure) { return failure.number == number; });
  const bool recovered =
      number >= 144 && number <= 150 && line.find("Nonfatal") != std::string_view::npos;
  return found == kFailures.end() || recovered ? nullptr : found->words;
}

// "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
bool ends_recovery(int number, std::string_view line) {
  return number == kRecoveryActionChanged && line.find(" to 0x0") != std::string_view::npos;
}

}  // namespace

std::vector<Finding> evaluate_xids(std::string_view log) {
  constexpr std::string_view kBegin = "NVRM: Xid (";
  constexpr std::string_view kBus = "PCI:";  // older drivers do not write it
  std::vector<Finding> findings;
  for (auto at = log.find(kBegin); at != log.npos; at = log.find(kBegin, at)) {
    at += kBegin.size();
    auto line = log.substr(at, std::min(log.find('\n', at), log.size()) - at);
    if (line.starts_with(kBus)) line.remove_prefix(kBus.size());
    const auto end = line.find("): ");
    if (end == line.npos) continue;
    int number = 0;
    const auto digits = line.substr(end + 3);
    std::from_chars(digits.data(), digits.data() + digits.size(), number);
    const char* what = failure_in(number, line);
    if (what == nullptr) continue;
    Finding finding{.check = fmt::format("gpu.xid_{}", number),
                    .severity = Severity::warning,
                    .device = std::string(line.substr(0, std::min<std::size_t>(end, 32))),
                    .value = what,
                    .expected = "no such line since the node started",
                    .rule = "the kernel log reports no GPU failure",
                    .evidence = fmt::format("Xid {}", number),
                    .action = "see NVIDIA's list of Xids; reset or replace the GPU"};
    if (!ends_recovery(number, line)) {
      findings.push_back(std::move(finding));
      continue;
    }
    std::erase_if(findings, [&finding](const Finding& earlier) {
      return earlier.check == finding.check && earlier.device == finding.device;
    });
  }
  return findings;
}

std::optional<std::string> read_kernel_log(const std::string& file) {
  constexpr std::size_t kMax = std::size_t{4} << 20;
  constexpr int kMaxRecords = 65536;
  const FileDescriptor log(open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!log) return std::nullopt;
  std::string text;
  std::array<char, 8192> record{};  // one record per read, as from /dev/kmsg
  for (int i = 0; i < kMaxRecords && text.size() < kMax; ++i) {
    const ssize_t n = read(log.get(), record.data(), record.size());
    if (n < 0 && errno == EPIPE) continue;  // overwritten meanwhile; read the next one
    if (n <= 0) break;
    text.append(record.data(), static_cast<std::size_t>(n));
  }
  return text;
}

}  // namespace ddp::check
