#pragma once
// Tables as netCDF-4 stores them: a group with a one-dimensional dataset for each column, along a
// dimension scale with the name of what a row is. Numbers are in compressed chunks; texts are of
// variable length, because netCDF before 4.9.1 crashes on arrays of texts of fixed length.
#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/hdf5.hpp"

namespace reelmesh {

/// A column of numbers or texts, and where its value is in a row in memory.
struct Column {
  const char* name;
  std::size_t offset;
  hid_t type;  ///< of numbers
  const char* long_name;
  const char* unit;                   ///< "" for texts and identifiers
  std::size_t letters = 0;            ///< for a text the length of its char array; 0: a number
  std::vector<std::string> meanings;  ///< of the numbers 0, 1, … of an enumeration
};

/// A table of a result file: its name and columns.
struct TableFormat {
  const char* name;
  /// What a row is. If the first column has this name, its values are the coordinate.
  const char* dimension;
  const char* long_name;
  std::size_t row_bytes;
  std::vector<Column> columns;
};

/// "TABLE/COLUMN", in the group that has the table.
std::string column_path(const TableFormat& table, const Column& column);

/// The values of a column of numbers, from the bytes of rows.
std::string column_values(const TableFormat& table, const Column& column, std::string_view rows);

/// The group of a new table of `rows` rows.
class NewTable {
 public:
  NewTable(hid_t parent, const TableFormat& table, std::int64_t rows);
  /// Makes the dataset of a column of numbers, without values. A coordinate comes first.
  hdf5::Dataset add(const Column& column);
  /// Makes and writes a column of texts.
  void add_texts(const Column& column, const std::vector<const char*>& values);

 private:
  void finish(const hdf5::Dataset& dataset, const Column& column);

  hdf5::Group group_;
  std::int64_t rows_;
  const char* dimension_;
  hdf5::Dataset scale_;
};

/// Makes a table of numbers without its values.
void create_table(hid_t parent, const TableFormat& table, std::int64_t rows);
/// Makes and writes a table from one rank. rows: the bytes of all rows.
void write_table(hid_t parent, const TableFormat& table, std::string_view rows);

/// Texts of a row, of a char array that ends with a zero or is full.
template <std::size_t n>
std::string_view text_of(const char (&column)[n]) {
  return {column, strnlen(column, n)};
}
/// Sets a text of a row: UTF-8, padded with zeros; longer ones are truncated.
template <std::size_t n>
void put(char (&field)[n], std::string_view text) {
  std::size_t length = std::min(text.size(), n);
  // Do not cut within a character: continuation bytes are 10xxxxxx.
  while (length < text.size() && length > 0 && (text[length] & 0xC0) == 0x80) --length;
  std::memset(field, 0, n);
  std::memcpy(field, text.data(), length);
}

/// The bytes of rows.
template <class Rows>
std::string_view bytes_of(const Rows& rows) {
  const std::span all(rows);
  return {reinterpret_cast<const char*>(all.data()), all.size_bytes()};
}

}  // namespace reelmesh
