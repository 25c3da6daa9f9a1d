// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/transport/network_model.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

#include "base/errors.h"

namespace ddp::comm {

const char* to_string(NetworkSource::Kind kind) noexcept {
  switch (kind) {
    case NetworkSource::Kind::assumed:
      return "assumed";
    case NetworkSource::Kind::measured:
      return "measured";
    case NetworkSource::Kind::given:
      return "given";
  }
  return "";
}

NetworkSource parse_network(const std::string& text) {
  if (text == "assume") return {};
  if (text == "measure") return {NetworkSource::Kind::measured, {}};
  const char* at = text.c_str();
  char* end = nullptr;
  const double microseconds = std::strtod(at, &end);
  const bool has_both = end != at && *end == ':';
  const char* const second = has_both ? end + 1 : end;
  const double gbit = has_both ? std::strtod(second, &end) : 0;
  const auto usable = [](double value) { return std::isfinite(value) && value > 0; };
  if (!has_both || end == second || *end != '\0' || !usable(microseconds) || !usable(gbit)) {
    throw UsageError(
        fmt::format("the network must be 'assume', 'measure' or LATENCY:BANDWIDTH in microseconds "
                    "and Gbit/s, such as "
                    "30:100; not '{}'",
                    text));
  }
  NetworkModel model;
  model.alpha = microseconds * 1e-6;
  model.beta = 8 / (gbit * 1e9);
  return {NetworkSource::Kind::given, model};
}

}  // namespace ddp::comm
