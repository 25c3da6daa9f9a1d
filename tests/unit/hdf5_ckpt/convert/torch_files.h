// SPDX-License-Identifier: Apache-2.0
// Files of torch.save from opcodes of pickles, as PyTorch writes them and as it does not.
#pragma once

#include <zlib.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace ddp::ckpt::test {

inline std::string little(std::uint64_t value, std::size_t bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i, value >>= 8U) text += static_cast<char>(value);
  return text;
}

inline std::vector<std::byte> bytes_of(const std::string& text) {
  std::vector<std::byte> bytes(text.size());
  if (!text.empty()) std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

// A zip file of uncompressed entries.
inline std::string zip_of(const std::vector<std::pair<std::string, std::string>>& entries,
                          bool checksums = true) {
  std::string file;
  std::string directory;
  for (const auto& [name, content] : entries) {
    const auto* data = reinterpret_cast<const Bytef*>(content.data());
    const uLong crc = checksums ? ::crc32(0, data, static_cast<uInt>(content.size())) : 0;
    const std::string common = little(0, 2) + little(0, 2) + little(0, 4) + little(crc, 4) +
                               little(content.size(), 4) + little(content.size(), 4) +
                               little(name.size(), 2) + little(0, 2);
    directory += "PK\x01\x02" + little(20, 2) + little(20, 2) + common + little(0, 10) +
                 little(file.size(), 4) + name;
    file += "PK\x03\x04" + little(20, 2) + common + name + content;
  }
  const std::string end = "PK\x05\x06" + little(0, 4) + little(entries.size(), 2) +
                          little(entries.size(), 2) + little(directory.size(), 4) +
                          little(file.size(), 4) + little(0, 2);
  return file + directory + end;
}

// The text as a pickle's.
inline std::string pickled(const std::string& text) {
  return "X" + little(text.size(), 4) + text;
}
inline std::string number(std::int64_t value) {
  return "\x8a\x08" + little(static_cast<std::uint64_t>(value), 8);
}
inline std::string sizes(const std::vector<std::int64_t>& values) {
  std::string text = "(";
  for (const std::int64_t value : values) text += number(value);
  return text + "t";
}
inline std::string global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
inline std::string none() {
  return "N";
}

// A storage with this key.
inline std::string storage(const std::string& type, std::int64_t elements,
                           const std::string& key = "0") {
  return "(" + pickled("storage") + global("torch", type) + pickled(key) + pickled("cpu") +
         number(elements) + "tQ";
}

// A tensor of one dimension at the beginning of its storage; `more`: further arguments.
inline std::string tensor(const std::string& type, std::int64_t elements,
                          const std::string& function = "_rebuild_tensor_v2",
                          const std::string& more = "", const std::string& key = "0") {
  return global("torch._utils", function) + "(" + storage(type, elements, key) + "K" +
         std::string(1, '\0') + sizes({elements}) + sizes({1}) + "\x89" +
         global("collections", "OrderedDict") + ")R" + more + "tR";
}

// {"k": value, ...}: `items` are keys and values.
inline std::string dict(const std::string& items) {
  return "}(" + items + "u";
}

inline std::string torch_file(const std::string& object, const std::string& content,
                              const std::string& byteorder = "little", bool checksums = true) {
  return zip_of({{"a/data.pkl", "\x80\x02" + object + "."},
                 {"a/byteorder", byteorder},
                 {"a/data/0", content}},
                checksums);
}

// The format before PyTorch 1.6, with one storage.
inline std::string old_torch_file(const std::string& object, std::uint64_t elements,
                                  const std::string& content) {
  const std::string start = "\x80\x02";
  return start + "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19." + start + "M\xe9\x03." +
         start + "}." + start + object + "." + start + "]" + pickled("0") + "a." +
         little(elements, 8) + content;
}

template <typename Number>
std::string raw(const std::vector<Number>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Number)};
}

}  // namespace ddp::ckpt::test
