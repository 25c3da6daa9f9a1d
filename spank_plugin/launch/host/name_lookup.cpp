// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/host/name_lookup.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "base/deadline.h"
#include "base/errors.h"
#include "base/socket.h"
#include "base/subprocess.h"
#include "base/text.h"

namespace ddp::launch {
namespace {

// True for addresses by which no other node reaches this one: loopback, unspecified (which leads to
// the host itself), and link-local of IPv6 without its interface.
bool is_local(const addrinfo& address) {
  if (address.ai_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, address.ai_addr, sizeof v4);
    return (ntohl(v4.sin_addr.s_addr) >> 24) == 127 || v4.sin_addr.s_addr == INADDR_ANY;
  }
  sockaddr_in6 v6{};
  std::memcpy(&v6, address.ai_addr, sizeof v6);
  return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) || IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr) ||
         (IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr) && v6.sin6_scope_id == 0);
}

// The first byte of the answer is the result. The addresses follow, one per line.
std::string encode(const NameAnswer& answer) {
  std::string message(1, static_cast<char>(answer.lookup));
  for (const auto& address : answer.addresses) message.append(address).append("\n");
  return message;
}

NameAnswer decode(std::string_view message) {
  NameAnswer answer{static_cast<NameLookup>(message.front()), {}};
  for (const auto address : split(message.substr(1), '\n')) {
    if (is_host_or_address(address)) answer.addresses.emplace_back(address);
  }
  return answer;
}

}  // namespace

NameAnswer resolve(const std::string& name) {
  constexpr std::size_t kMaxAddresses = 8;
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int result = getaddrinfo(name.c_str(), nullptr, &hints, &found);
  if (result != 0) {
    // Only these two errors are answers. The others mean that the name service is down or
    // overloaded.
    const bool is_answer = result == EAI_NONAME || result == EAI_NODATA;
    return {is_answer ? NameLookup::unknown_name : NameLookup::no_answer, {}};
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  NameAnswer answer{NameLookup::only_local, {}};
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    if (is_local(*address)) continue;
    answer.lookup = NameLookup::usable;
    std::string text = numeric_address(address->ai_addr);
    if (answer.addresses.size() < kMaxAddresses && !text.empty())
      answer.addresses.push_back(std::move(text));
  }
  return answer;
}

NameAnswer look_up_name(const std::string& name, std::chrono::milliseconds limit,
                        const Resolver& resolver) {
  const Deadline deadline = Clock::now() + limit;
  try {
    Subprocess child = Subprocess::calling([&] {
      try {
        return encode(resolver(name));
      } catch (...) {
        return encode({NameLookup::no_answer, {}});
      }
    });
    const SubprocessOutput output = child.wait(deadline);
    if (output.timed_out) return {NameLookup::timed_out, {}};
    if (output.exit_code != 0 || output.text.empty()) return {};
    return decode(output.text);
  } catch (const RuntimeError&) {  // the process could not be started
    return {};
  }
}

bool is_own_address(const std::string& address) noexcept {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.c_str(), nullptr, &hints, &found) != 0) return false;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  if (address == "0.0.0.0" || address == "::") return false;
  const FileDescriptor socket(::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return socket && bind(socket.get(), found->ai_addr, found->ai_addrlen) == 0;
}

bool has_only_loopback() noexcept {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return false;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(all, freeifaddrs);
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if ((each->ifa_flags & IFF_LOOPBACK) == 0) return false;
  }
  return true;
}

}  // namespace ddp::launch
