# SPDX-License-Identifier: Apache-2.0
# Writes a C++ file that contains the given files as data.
#   cmake -DOUTPUT=FILE [-DIMAGES=FILE,...] -P embed_images.cmake
string(REPLACE "," ";" images "${IMAGES}")
set(arrays "")
set(entries "")
list(LENGTH images count)
foreach(image IN LISTS images)
  get_filename_component(name "${image}" NAME_WE)
  file(READ "${image}" hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(APPEND arrays "alignas(16) constexpr unsigned char k_${name}[] = {${bytes}};\n")
  string(APPEND entries "    KernelImage{\"${name}\", k_${name}},\n")
endforeach()
file(WRITE "${OUTPUT}" "// Written by embed_images.cmake.
#include <array>

#include \"ddp_runtime/kernels/kernel_images.h\"

namespace ddp::kernels {
namespace {

${arrays}
constexpr std::array<KernelImage, ${count}> kImages = {
${entries}};

}  // namespace

std::span<const KernelImage> kernel_images() {
  return kImages;
}

}  // namespace ddp::kernels
")
