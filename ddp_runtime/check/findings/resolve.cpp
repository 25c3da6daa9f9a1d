// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/findings/resolve.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "base/socket.h"
#include "ddp_runtime/check/findings/within.h"

namespace ddp::check {
namespace {

Resolution resolve_now(const std::string& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(name.c_str(), nullptr, &hints, &found);
  if (code != 0) return failed_resolution(code);
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  Resolution result;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    std::string address = numeric_address(a->ai_addr);
    if (!address.empty()) result.addresses.push_back(std::move(address));
  }
  std::sort(result.addresses.begin(), result.addresses.end());
  result.addresses.erase(std::unique(result.addresses.begin(), result.addresses.end()),
                         result.addresses.end());
  return result;
}

}  // namespace

Resolution failed_resolution(int code) {
  constexpr std::array kAboutTheName{EAI_NONAME, EAI_NODATA, EAI_ADDRFAMILY, EAI_IDN_ENCODE};
  const bool known =
      std::find(kAboutTheName.begin(), kAboutTheName.end(), code) != kAboutTheName.end();
  return {{}, gai_strerror(code), false, !known};
}

Resolution resolve(const std::string& name, std::chrono::milliseconds timeout) {
  const auto result = run_within(timeout, [name] { return resolve_now(name); });
  if (result) return *result;
  return {{}, fmt::format("no answer within {} ms", timeout.count()), true, true};
}

bool is_address(const std::string& text) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (getaddrinfo(text.c_str(), nullptr, &hints, &found) != 0) return false;
  freeaddrinfo(found);
  return !text.empty();
}

bool only_loopback(const std::vector<std::string>& addresses) {
  return !addresses.empty() && std::all_of(addresses.begin(), addresses.end(), is_loopback);
}

}  // namespace ddp::check
