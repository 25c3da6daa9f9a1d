// SPDX-License-Identifier: Apache-2.0
// Owner tags: "<job>.r<restart>.<host>.p<pid>". The job does not contain a dot, so the text can be
// parsed from both ends, while the host may contain dots.

#include "hdf5_ckpt/core/owner_tag.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <limits>

#include "hdf5_ckpt/core/error.h"

namespace ddp::ckpt {
namespace {

constexpr std::size_t kMaxWord = 64;

bool is_word(std::string_view text, std::string_view extra) {
  const auto allowed = [extra](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           extra.find(c) != std::string_view::npos;
  };
  return !text.empty() && text.size() <= kMaxWord && std::all_of(text.begin(), text.end(), allowed);
}

bool is_valid(const OwnerTag& tag) {
  return is_word(tag.job, "_-") && is_word(tag.host, "._-") && tag.pid > 0;
}

template <typename Number>
std::optional<Number> whole_number(std::string_view text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

// True also for a zombie, which no longer runs but has not been waited for.
bool has_ended(pid_t pid) {
  if (::kill(pid, 0) != 0) return errno == ESRCH;
  std::ifstream status(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(status, text);
  // "4242 (name, which may contain anything) Z ..."
  const auto name_end = text.rfind(") ");
  return name_end != std::string::npos && name_end + 2 < text.size() && text[name_end + 2] == 'Z';
}

OwnerTag OwnerTag::of_this_process(std::string job, unsigned restart) {
  std::array<char, kMaxWord + 1> host{};  // a name of kMaxWord bytes and the terminating zero
  if (::gethostname(host.data(), host.size()) != 0) throw Error("cannot read this host's name");
  return {std::move(job), restart, host.data(), ::getpid()};
}

std::string OwnerTag::text() const {
  if (!is_valid(*this))
    throw Error(fmt::format(
        "'{}' on host '{}' cannot name the owner of a checkpoint: a job is 1 to {} letters, "
        "digits, '_' or '-', and a host name also has '.'",
        job, host, kMaxWord));
  return fmt::format("{}.r{}.{}.p{}", job, restart, host, pid);
}

std::optional<OwnerTag> OwnerTag::parse(std::string_view text) {
  const auto job_end = text.find('.');
  const auto restart_end = text.find('.', job_end + 1);
  const auto host_end = text.rfind('.');
  if (job_end == std::string_view::npos || restart_end == std::string_view::npos ||
      host_end <= restart_end)
    return std::nullopt;
  const std::string_view restart = text.substr(job_end + 1, restart_end - job_end - 1);
  const std::string_view pid = text.substr(host_end + 1);
  if (!restart.starts_with('r') || !pid.starts_with('p')) return std::nullopt;
  const auto restart_number = whole_number<unsigned>(restart.substr(1));
  const auto pid_number = whole_number<pid_t>(pid.substr(1));
  if (!restart_number || !pid_number) return std::nullopt;
  OwnerTag tag{std::string(text.substr(0, job_end)), *restart_number,
               std::string(text.substr(restart_end + 1, host_end - restart_end - 1)), *pid_number};
  // Accept only the exact spelling that text() produces: "r007" is not valid.
  if (!is_valid(tag) || tag.text() != text) return std::nullopt;
  return tag;
}

OwnerIsDead dead_relatives_of(OwnerTag own) {
  return [own = std::move(own)](const OwnerTag& other) {
    if (other.job != own.job || other == own) return false;
    if (other.restart < own.restart) return true;
    return other.restart == own.restart && other.host == own.host && has_ended(other.pid);
  };
}

}  // namespace ddp::ckpt
