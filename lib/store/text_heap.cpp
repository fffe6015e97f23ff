#include "store/text_heap.hpp"

#include <fcntl.h>
#include <hdf5.h>

#include <cstring>

#include "base/error.hpp"

namespace reelmesh::hdf5 {
namespace {

constexpr std::uint64_t header_bytes = 16;  // of a collection, and of an object in it

std::uint64_t number(const char* bytes, std::size_t count) {
  std::uint64_t value = 0;
  for (std::size_t i = count; i-- > 0;) value = value << 8U | static_cast<unsigned char>(bytes[i]);
  return value;
}

// Source and result have the same bytes and size, so there is nothing to convert.
herr_t keep_reference(hid_t from, hid_t to, H5T_cdata_t* data, std::size_t, std::size_t,
                      std::size_t, void*, void*, hid_t) {
  if (data->command != H5T_CONV_INIT) return 0;
  data->need_bkg = H5T_BKG_NO;
  return H5Tget_size(from) == sizeof(TextReference) && H5Tget_size(to) == sizeof(TextReference)
             ? 0
             : -1;
}

}  // namespace

void register_text_references() {
  const hid_t text = H5Tcopy(H5T_C_S1);
  const hid_t bytes = H5Tcreate(H5T_OPAQUE, sizeof(TextReference));
  H5Tset_size(text, H5T_VARIABLE);
  const herr_t done =
      H5Tregister(H5T_PERS_SOFT, "reference to a text", text, bytes, keep_reference);
  H5Tclose(text);
  H5Tclose(bytes);
  expect(done >= 0, "HDF5 refuses a conversion of texts");
}

std::optional<std::string> TextHeap::read(const TextReference& reference, std::size_t limit) {
  const auto* bytes = reinterpret_cast<const char*>(reference.data());
  const std::uint64_t length = number(bytes, 4), address = number(bytes + 4, 8),
                      index = number(bytes + 12, 4);
  if (length > limit) return std::nullopt;
  if (length == 0 || address == 0) return std::string();
  const std::string& heap = collection(address);
  for (std::uint64_t at = header_bytes; at + header_bytes <= heap.size();) {
    const std::uint64_t found = number(heap.data() + at, 2), size = number(heap.data() + at + 8, 8);
    const std::uint64_t room = heap.size() - at - header_bytes;
    if (found == 0 || size > room) break;  // free space up to the end, or damage
    if (found == index) {
      if (size != length) break;
      std::string text = heap.substr(at + header_bytes, length);
      text.resize(std::strlen(text.c_str()));  // h5py stores the final zero, too
      return text;
    }
    at += header_bytes + (size + 7) / 8 * 8;
  }
  return std::nullopt;
}

const std::string& TextHeap::collection(std::uint64_t address) {
  constexpr std::uint64_t max_bytes = std::uint64_t{256} << 20;
  if (address == address_) return collection_;
  address_ = address;
  collection_.clear();
  const std::string header = read_bytes(address, header_bytes);
  if (header.size() < header_bytes || !header.starts_with("GCOL\1")) return collection_;
  const std::uint64_t size = number(header.data() + 8, 8);
  if (size <= max_bytes) collection_ = read_bytes(address, size);
  return collection_;
}

std::string TextHeap::read_bytes(std::uint64_t address, std::uint64_t count) const {
  const off_t end = ::lseek(file_.get(), 0, SEEK_END);
  if (end < 0 || address > static_cast<std::uint64_t>(end) ||
      count > static_cast<std::uint64_t>(end) - address) {
    return {};
  }
  std::string bytes(count, '\0');
  const bool whole =
      read_at(file_.get(), bytes.data(), count, static_cast<off_t>(address)) == count;
  return whole ? bytes : std::string();
}

}  // namespace reelmesh::hdf5
