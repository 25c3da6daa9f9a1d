// SPDX-License-Identifier: Apache-2.0
// What a test tells a fake of a vendor's library.
#pragma once

#include <cstdlib>
#include <string>

// N of the word "key=N" in an environment variable.
inline long said_in(const char* variable, const std::string& key, long otherwise) {
  const char* words = std::getenv(variable);
  const std::string text = std::string(" ") + (words == nullptr ? "" : words);
  const auto at = text.find(" " + key + "=");
  return at == text.npos ? otherwise : std::atol(text.c_str() + at + key.size() + 2);
}
