#pragma once
// FFmpeg's libraries, loaded when they are first needed. Linked, they would cost every process 50
// ms and 180 MiB of address space, even if it reads no video.
extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/display.h>
#include <libavutil/opt.h>
#include <libavutil/pixdesc.h>
#include <libswscale/swscale.h>
}

#include <string>
#include <type_traits>

#include "base/shared_library.hpp"

// Since FFmpeg 6.1 the side data of a stream are in its AVCodecParameters.
#define REELMESH_LIBAV_CODED_SIDE_DATA (LIBAVCODEC_VERSION_INT >= AV_VERSION_INT(60, 31, 100))

namespace reelmesh::media {

/// The functions in use, by their names. Nothing is logged to standard error.
struct Libav {
  SharedLibrary util, codec, format, scale;

// The libraries' declarations have attributes, which types of pointers do not keep.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wignored-attributes"
#define REELMESH_LIBAV_FUNCTION(library, f) \
  decltype(&::f) f = library.function<std::remove_pointer_t<decltype(&::f)>>(#f)
  REELMESH_LIBAV_FUNCTION(util, av_dict_free);
  REELMESH_LIBAV_FUNCTION(util, av_dict_set);
  REELMESH_LIBAV_FUNCTION(util, av_display_rotation_get);
  REELMESH_LIBAV_FUNCTION(util, av_frame_alloc);
  REELMESH_LIBAV_FUNCTION(util, av_frame_free);
  REELMESH_LIBAV_FUNCTION(util, av_frame_get_buffer);
  REELMESH_LIBAV_FUNCTION(util, av_freep);
  REELMESH_LIBAV_FUNCTION(util, av_get_pix_fmt_name);
  REELMESH_LIBAV_FUNCTION(util, av_log_set_callback);
  REELMESH_LIBAV_FUNCTION(util, av_malloc);
  REELMESH_LIBAV_FUNCTION(util, av_max_alloc);
  REELMESH_LIBAV_FUNCTION(util, av_opt_set_int);
  REELMESH_LIBAV_FUNCTION(util, av_strerror);
  REELMESH_LIBAV_FUNCTION(codec, av_packet_alloc);
  REELMESH_LIBAV_FUNCTION(codec, av_packet_free);
  REELMESH_LIBAV_FUNCTION(codec, av_packet_unref);
  REELMESH_LIBAV_FUNCTION(codec, avcodec_alloc_context3);
  REELMESH_LIBAV_FUNCTION(codec, avcodec_find_decoder);
  REELMESH_LIBAV_FUNCTION(codec, avcodec_flush_buffers);
  REELMESH_LIBAV_FUNCTION(codec, avcodec_free_context);
  REELMESH_LIBAV_FUNCTION(codec, avcodec_get_name);
  REELMESH_LIBAV_FUNCTION(codec, avcodec_open2);
  REELMESH_LIBAV_FUNCTION(codec, avcodec_parameters_to_context);
  REELMESH_LIBAV_FUNCTION(codec, avcodec_receive_frame);
  REELMESH_LIBAV_FUNCTION(codec, avcodec_send_packet);
  REELMESH_LIBAV_FUNCTION(format, av_probe_input_buffer2);
  REELMESH_LIBAV_FUNCTION(format, av_read_frame);
  REELMESH_LIBAV_FUNCTION(format, av_seek_frame);
#if !REELMESH_LIBAV_CODED_SIDE_DATA
  REELMESH_LIBAV_FUNCTION(format, av_stream_get_side_data);
#endif
  REELMESH_LIBAV_FUNCTION(format, avformat_alloc_context);
  REELMESH_LIBAV_FUNCTION(format, avformat_close_input);
  REELMESH_LIBAV_FUNCTION(format, avformat_find_stream_info);
  REELMESH_LIBAV_FUNCTION(format, avformat_free_context);
  REELMESH_LIBAV_FUNCTION(format, avformat_open_input);
  REELMESH_LIBAV_FUNCTION(format, avio_alloc_context);
  REELMESH_LIBAV_FUNCTION(format, avio_context_free);
  REELMESH_LIBAV_FUNCTION(scale, sws_alloc_context);
  REELMESH_LIBAV_FUNCTION(scale, sws_freeContext);
  REELMESH_LIBAV_FUNCTION(scale, sws_getCoefficients);
  REELMESH_LIBAV_FUNCTION(scale, sws_getColorspaceDetails);
  REELMESH_LIBAV_FUNCTION(scale, sws_init_context);
  REELMESH_LIBAV_FUNCTION(scale, sws_isSupportedInput);
  REELMESH_LIBAV_FUNCTION(scale, sws_scale);
  REELMESH_LIBAV_FUNCTION(scale, sws_setColorspaceDetails);
#undef REELMESH_LIBAV_FUNCTION
#pragma GCC diagnostic pop
};

/// Loaded by the first call; thread-safe. Throws Error(unavailable) if a library, of the major
/// version that the program was compiled for, cannot be loaded.
const Libav& libav();

/// Forgets the errors that the libraries logged in this thread.
void forget_libav_errors();
/// Whether they have logged one since.
bool has_libav_error();

/// What failed, on one line: the first error that was logged, otherwise the meaning of the status.
std::string libav_reason(int status);

}  // namespace reelmesh::media
