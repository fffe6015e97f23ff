#include "pipeline/run.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "base/progress.hpp"
#include "base/trace.hpp"
#include "comm/together.hpp"
#include "ops/onednn.hpp"
#include "pipeline/machine.hpp"
#include "pipeline/planning.hpp"
#include "pipeline/report.hpp"
#include "pipeline/stages.hpp"
#include "plan/nodes.hpp"
#include "store/file.hpp"
#include "store/job.hpp"
#include "store/trace.hpp"
#include "tensor/memory.hpp"
#include "tensor/numerics.hpp"

namespace reelmesh::pipeline {
namespace {

// Rank 0 works; where it fails, all ranks throw the same error.
void on_first_rank(const comm::Group& world, const std::function<void()>& work) {
  comm::together(world, [&] {
    if (world.rank() == 0) work();
  });
}

// The ranks agree on what they plan with, so that they come to the same plan.
Conditions conditions_of(const comm::Group& world, int threads, DType dtype, Device device) {
  const auto wider = [](DType type) { return std::int64_t{size_of(type)}; };
  const bool wide = world.max(wider(ops::compute_dtype(dtype))) == wider(DType::float32);
  return {world.size(), static_cast<int>(world.max(std::int64_t{threads})),
          wide ? DType::float32 : dtype, device.is_cuda()};
}

// Ranks in the order of their places. mesh: of a denoising group.
comm::Group in_places(const comm::Group& world, const Plan& plan, const Mesh& mesh, Order order) {
  if (order == Order::rank) return world;
  const std::vector<int> nodes = nodes_of(world);
  const std::vector<int> places =
      order_by_node(nodes, close_ranks(plan.denoise, {mesh.branch_ranks(), mesh.ulysses}, nodes));
  return std::is_sorted(places.begin(), places.end()) ? world : world.in_order(places);
}

// The clips that are still to be made.
std::vector<Clip> pending_clips(const Job& job, const Family& model, std::vector<Clip> clips,
                                const comm::Group& world) {
  if (job.if_exists != IfExists::resume) return clips;
  std::string done(clips.size(), ' ');
  if (world.rank() == 0) {
    for (std::size_t i = 0; i < clips.size(); ++i) {
      const bool complete = clip_complete(clip_path(job.output, clips[i].index()), clips[i].record,
                                          model.shapes(job, clips[i]));
      done[i] = complete ? 'x' : ' ';
    }
  }
  done = world.broadcast(done, 0);
  std::vector<Clip> pending;
  for (std::size_t i = 0; i < clips.size(); ++i) {
    if (done[i] == ' ') pending.push_back(std::move(clips[i]));
  }
  if (pending.size() < clips.size()) {
    log::info("{} of {} clips are complete already", clips.size() - pending.size(), clips.size());
  }
  return pending;
}

Existing existing(IfExists choice) {
  return choice == IfExists::fail      ? Existing::fail
         : choice == IfExists::replace ? Existing::replace
                                       : Existing::resume;
}

// One prompt's embedding out of [token, branch, channel], as float32 [token, channel].
Tensor branch_of(const Tensor& context, std::int64_t branch) {
  const std::int64_t tokens = context.shape(0), branches = context.shape(1);
  const Tensor values = context.to(DType::float32);
  Tensor out = Tensor::empty({tokens, context.shape(2)}, DType::float32);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const Tensor row =
        values.reshape({tokens * branches, context.shape(2)}).rows(t * branches + branch, 1);
    std::copy_n(row.data<float>(), row.numel(), out.rows(t, 1).data<float>());
  }
  return out;
}

// Where the results of the decode group go. Knows the clock, because a clip's file says how long
// the job worked on it.
class Writer {
 public:
  Writer(const Job& job, const DecodeStage& decode) : job_(job), decode_(decode) {}

  void operator()(const Clip& clip, const Sharded& latents, const Sharded& video,
                  const Sharded* context) {
    const comm::Group& group = decode_.group();
    if (!group.member()) return;
    const trace::Scope scope("write", trace::Level::stages, "file");
    ClipRecord record = clip.record;
    const std::int64_t now = trace::now_ns();
    record.wall_seconds = group.max(static_cast<double>(now - since_) * 1e-9);
    since_ = now;
    const Sharded kept_latents = decode_.within(latents);
    std::vector<Sharded> embeddings;
    if (context != nullptr) {
      const Sharded spread = decode_.within(*context);
      const Shape& shape = spread.layout.global();
      const Layout layout = Layout::cut({shape[0], shape[2]}, 0, group.size());
      for (std::int64_t branch = shape[1] - 1; branch >= 0; --branch) {
        embeddings.push_back({branch_of(spread.local.on({}), branch), layout, group});
      }
    }
    write_clip(group, job_.output, record, job_.keep_video ? &video : nullptr,
               job_.keep_latents ? &kept_latents : nullptr,
               embeddings.empty() ? nullptr : &embeddings.front(),
               embeddings.size() > 1 ? &embeddings.back() : nullptr,
               job_.if_exists != IfExists::fail);
  }

 private:
  const Job& job_;
  const DecodeStage& decode_;
  std::int64_t since_ = trace::now_ns();  ///< end of the clip before
};

// prompts → embeddings → latents → video → files. In split mode the stages stand on disjoint ranks
// and a round is one batch, so that clips stream through them; in phased mode a round is all clips,
// and the text encoder leaves before the transformer comes. Where the plan has transformer and
// decoder in turn, each leaves before the other comes, wave by wave.
void make_clips(const Job& job, const Family& model, const Plan& plan, const comm::Group& world,
                const std::vector<Batch>& batches, Device device) {
  Encode encode(world, plan, model, job.dtype);
  const auto denoise_stage = model.denoise(world, plan, job.dtype);
  const auto decode_stage = model.decode(world, plan, job.dtype);
  DenoiseStage& denoise = *denoise_stage;
  DecodeStage& decode = *decode_stage;
  const bool split = plan.mode == Mode::split;
  encode.load(device);
  if (split) {
    denoise.load(device);
    decode.load(device);
  }
  Writer write(job, decode);
  // The replica that has the first batch tells how far the job is.
  std::int64_t steps = 0;
  for (std::size_t i = 0; i < batches.size(); i += denoise.replicas())
    steps += steps_of(batches[i]);
  const bool speaks = world.rank() == plan.denoise.front().first;
  Progress progress("denoising", steps, "step", Progress::standard_error(speaks));

  for (std::size_t first = 0; first < batches.size(); first += split ? 1 : batches.size()) {
    const std::size_t last = split ? first + 1 : batches.size();
    std::vector<std::vector<Sharded>> encoded(last - first), contexts(last - first);  // of batches
    for (std::size_t i = first; i < last; ++i) {
      for (const Clip& clip : batches[i]) {
        const trace::Mark mark(&trace::Recorder::clip, clip.index());
        encoded[i - first].push_back(encode(clip));
      }
    }
    if (!split) {
      encode.release();
      release_free_memory();
    }
    for (std::size_t i = first; i < last; ++i) {
      for (std::size_t c = 0; c < batches[i].size(); ++c) {
        const trace::Mark mark(&trace::Recorder::clip, batches[i][c].index());
        contexts[i - first].push_back(
            hand_over(encoded[i - first][c], denoise.context_layout(batches[i][c], i)));
      }
    }
    encoded.clear();
    if (!split && !plan.in_turn) {
      denoise.load(device);
      decode.load(device);
      release_free_memory();
    }
    // Replicas work on batches side by side; then their clips are decoded one after the other.
    for (std::size_t wave = first; wave < last; wave += denoise.replicas()) {
      const std::size_t end = std::min(last, wave + denoise.replicas());
      if (plan.in_turn) denoise.load(device);
      std::vector<std::vector<Sharded>> latents;
      for (std::size_t i = wave; i < end; ++i) {
        const trace::Mark mark(&trace::Recorder::clip, batches[i].front().index());
        latents.push_back(denoise(batches[i], i, contexts[i - first],
                                  [&] { progress.advance(std::ssize(batches[i])); }));
      }
      if (plan.in_turn) {
        denoise.release();
        decode.load(device);
      }
      if (!split) release_free_memory();  // in split mode a rank has one stage, whose sizes stay
      for (std::size_t i = wave; i < end; ++i) {
        for (std::size_t c = 0; c < batches[i].size(); ++c) {
          const Clip& clip = batches[i][c];
          const trace::Mark mark(&trace::Recorder::clip, clip.index());
          const Sharded& made = latents[i - wave][c];
          const Sharded placed = hand_over(made, decode.latents(made.layout.global()));
          std::optional<Sharded> context;
          if (job.keep_embeddings) {
            const Sharded& held = contexts[i - first][c];
            context = hand_over(held, decode.context(held.layout.global()));
          }
          if (decode.group().member()) {
            const Sharded video = job.keep_video ? decode(clip, decode.within(placed)) : Sharded{};
            write(clip, placed, video, context ? &*context : nullptr);
          }
        }
      }
      if (plan.in_turn) decode.release();
      if (!split) release_free_memory();
    }
  }
  progress.finish();
}

}  // namespace

Status run(const Job& asked, const ProgramInfo& program) {
  Job job = asked;
  comm::Group world = comm::Group::world();
  const std::int64_t start = trace::now_ns();
  const std::string started = iso8601_now();
  // Stages are always recorded, for the closing report.
  trace::recorder().level =
      std::max(trace::Level::stages, static_cast<trace::Level>(job.trace_level));

  const Machine machine = find_machine(world);
  const int threads = set_threads(machine, job.threads);
  const Device device = find_device(world, job.backend);
  numerics = job.numerics;
  world = world.use_device(device, job.transport, job.device_timeout);
  if (device.is_cuda() && world.size() > 1) {
    log::info("tensors travel between GPUs by {}", name_of(world.transport()));
  }
  if (device.is_cuda()) trace::recorder().settle = [device] { settle(device); };

  // Everything that can be refused is refused before anything is loaded or written.
  on_first_rank(world, [&] { Family::open(job.model)->check_weights(); });
  const std::unique_ptr<const Family> family = Family::open(job.model);
  const Family& model = *family;
  std::vector<Clip> clips = model.clips(job, Tokenizer::open(model.paths().tokenizer));
  const Conditions conditions = conditions_of(world, threads, job.dtype, device);
  // Stages take turns where a GPU has no room for all; but what is foreseen is no reason to refuse.
  const bool limited = !job.memory_limits.empty();
  if (!limited) job.memory_limits = free_memory_of_ranks(world, device);
  Plan plan = plan_roles(job, model, clips, conditions);
  world = in_places(world, plan, model.mesh(plan, clips.front(), job.dtype), job.parallel.order);
  plan.speeds = job.measure_speeds ? measure_speeds(world, job.dtype, device)
                                   : speeds_of_ranks(job, world.size());
  const MemoryPlan memory = plan_memory(job, model, clips, plan, conditions);
  if (limited) {
    require_fit(job, model, clips, memory, conditions);
  } else if (!memory.fits()) {
    log::warning("{}; this is what the GPU has free, and the job tries it", what_is_over(memory));
  }
  plan.in_turn = memory.in_turn;
  for (int r = 0; r < world.size(); ++r) {
    if (plan.role(r) == "idle") log::warning("rank {} has nothing to do in this layout", r);
  }
  for (Clip& clip : clips) {
    clip.record.layout = model.describe(plan, clip, job.dtype);
  }
  on_first_rank(world, [&] { prepare_output(job.output, existing(job.if_exists)); });
  const int all_clips = static_cast<int>(clips.size());
  const std::string layout = clips.front().record.layout + describe(memory);
  clips = pending_clips(job, model, std::move(clips), world);
  log::info("{} {} with {} on {} {} of {} {}", clips.size(), clips.size() == 1 ? "clip" : "clips",
            job.model.root.string(), world.size(), world.size() == 1 ? "rank" : "ranks", threads,
            threads == 1 ? "thread" : "threads");
  log::info("{}", layout);

  if (!clips.empty()) make_clips(job, model, plan, world, batches_of(clips, job.batch), device);

  const bool traced = job.trace_level > 0;
  if (traced) {
    write_trace(world, job.output,
                {machine.host, plan.role(world.rank()), name_of(device), threads,
                 peak_memory_bytes(), device_memory(device).peak},
                trace::recorder().spans);
  }
  JobRecord record{program.name, program.version, program.revision,
                   job.options,  layout,          world.gather(machine.host, 0),
                   started,      iso8601_now(),   all_clips,
                   traced};
  on_first_rank(world, [&] { write_job(job.output, record); });

  Totals totals;
  totals.clips = static_cast<int>(clips.size());
  totals.wall_seconds = static_cast<double>(trace::now_ns() - start) * 1e-9;
  totals.peak_memory_bytes = peak_memory_bytes();
  totals.peak_device_memory_bytes = device_memory(device).peak;
  const std::string report = closing_report(world, trace::recorder(), totals);
  log::info("{}results: {}", report, (job.output / "job.h5").string());
  return Status::ok;
}

}  // namespace reelmesh::pipeline
