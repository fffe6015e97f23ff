#pragma once
// Stages without models, for tests of the engine: a batch is a number that is passed on.
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "base/stop.hpp"
#include "layout/hand_over.hpp"
#include "pipeline/engine.hpp"
#include "plan/roles.hpp"

namespace reelmesh::pipeline {

/// What happens in a job.
struct ToyJob {
  std::size_t batches = 5;
  std::size_t clips = 2;         ///< of a batch
  std::set<std::size_t> saved;   ///< batches that have restart files
  std::set<std::size_t> inputs;  ///< batches whose inputs are encoded
  /// The call (counted over all stages of a rank) in which this rank is asked to stop.
  int stops_at = -1, stopping_rank = -1;
  /// This rank throws in its first call of a stage.
  std::optional<Stage> throws_in;
  int throwing_rank = -1;
  /// A clip that fails in a stage.
  std::optional<Stage> fails_in;
  std::size_t failing_batch = 0;
  unsigned seed = 0;   ///< of the delays; 0: none
  int slow_rank = -1;  ///< sleeps 50 ms in each step
  std::int64_t queue_bytes = 1 << 20;
};

class ToyWork final : public Work {
 public:
  ToyWork(const comm::Group& world, const ToyJob& job, const Roles& roles, int embeddings_rank)
      : world_(world),
        job_(job),
        embeddings_rank_(embeddings_rank),
        delays_(job.seed + static_cast<unsigned>(world.rank())),
        failed_(job.batches, std::vector<bool>(job.clips)) {
    text_ = world.range(roles.text.first, roles.text.count);
    set_roles(roles);
  }
  void set_tail(const Roles& roles) { tail_ = roles; }

  // What has happened on this rank.
  std::vector<std::size_t> denoised, saved_now, decoded;
  std::map<std::size_t, std::vector<bool>> failed_when_decoded;
  std::int64_t most_waiting = 0;  ///< bytes of embeddings at once
  int calls = 0;

  std::size_t clips(std::size_t) const override { return job_.clips; }
  bool needs_text(std::size_t batch) const override { return !job_.saved.contains(batch); }
  bool needs_input(std::size_t batch) const override {
    return needs_text(batch) && job_.inputs.contains(batch);
  }
  std::int64_t embedding_bytes(std::size_t) const override { return 100; }
  std::vector<bool>& failed(std::size_t batch) override { return failed_[batch]; }
  const comm::Group& text_ranks() const override { return text_; }
  const comm::Group& replica_ranks(std::size_t replica) const override {
    return replicas_[replica];
  }
  const comm::Group& decoder_ranks(std::size_t decoder) const override {
    return decoders_[decoder];
  }

  void enter(Stage stage) override {
    EXPECT_TRUE(stage != Stage::input || !inputs_left_) << "inputs after the last one";
    entered_ = stage;
  }
  void leave_input() override { inputs_left_ = true; }
  void begin_tail() override { set_roles(tail_); }

  bool encode(std::size_t batch) override {
    EXPECT_EQ(entered_, Stage::text);
    if (text_.max(happens(Stage::text, batch) ? std::int64_t{1} : 0) > 0) return false;
    if (world_.rank() != embeddings_rank_) return true;
    embeddings_[batch] = Tensor::of({number(batch)}, {1});
    waiting_ += embedding_bytes(batch);
    most_waiting = std::max(most_waiting, waiting_);
    return true;
  }

  std::unique_ptr<PendingHandOver> encode_inputs(std::size_t batch, std::size_t first,
                                                 std::size_t decoders) override {
    auto pending = std::make_unique<Pending>();
    for (std::size_t clip = 0; clip < job_.clips; ++clip) {
      const std::size_t decoder = (first + clip) % decoders;
      const bool encodes = decoders_[decoder].member();
      if (!encodes && world_.rank() != embeddings_rank_) continue;
      Tensor x;
      if (encodes) {
        EXPECT_EQ(entered_, Stage::input);
        (void)happens(Stage::input, batch);
        if (decoders_[decoder].rank() == 0) x = Tensor::of({number(batch) + 0.25F}, {1});
      }
      const Layout one = Layout::replicated({1}, 1);
      pending->add(
          HandOver(world_, key(MessageKey::Kind::encoded_input, batch, clip), x,
                   {one, one, decoder_ranges_[decoder].first, embeddings_rank_}, DType::float32),
          [this, batch](const Tensor& input) {
            if (world_.rank() != embeddings_rank_) return;
            EXPECT_EQ(input.span<float>()[0], number(batch) + 0.25F);
            ++inputs_[batch];
          });
    }
    return pending;
  }

  void hand_over_text(std::size_t batch, std::size_t replica) override {
    if (world_.rank() == embeddings_rank_) {
      EXPECT_TRUE(embeddings_.contains(batch)) << batch;
      EXPECT_EQ(inputs_[batch], needs_input(batch) ? job_.clips : 0) << batch;
    }
    const RankRange& ranks = replica_ranges_[replica];
    Tensor text = HandOver(world_, key(MessageKey::Kind::embeddings, batch, 0),
                           world_.rank() == embeddings_rank_ ? embeddings_[batch] : Tensor(),
                           {Layout::replicated({1}, 1), Layout::replicated({1}, ranks.count),
                            embeddings_rank_, ranks.first},
                           DType::float32)
                      .finish();
    if (replicas_[replica].member()) text_of_[batch] = text;
  }

  bool denoise(std::size_t batch, std::size_t replica,
               const std::function<void()>& after_step) override {
    const comm::Group& group = replicas_[replica];
    if (!group.member()) return true;
    EXPECT_EQ(entered_, Stage::denoise);
    std::vector<std::int64_t> known(failed_[batch].begin(), failed_[batch].end());
    const std::vector<std::int64_t> own = known;
    group.max(known);
    EXPECT_EQ(own, known) << "clips that have failed are known on all ranks, batch " << batch;
    if (needs_text(batch)) {
      EXPECT_EQ(text_of_.at(batch).span<float>()[0], number(batch));
    }
    for (int step = 0; step < 2; ++step) {
      if (world_.rank() == job_.slow_rank) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
      const bool stops = happens(Stage::denoise, batch);
      after_step();
      if (group.max(stops ? std::int64_t{1} : 0) > 0) {
        saved_now.push_back(batch);
        return false;
      }
    }
    denoised.push_back(batch);
    return true;
  }

  std::unique_ptr<PendingHandOver> hand_over_latents(std::size_t batch, std::size_t replica,
                                                     std::size_t decoder) override {
    const RankRange &from = replica_ranges_[replica], &to = decoder_ranges_[decoder];
    auto pending = std::make_unique<Pending>();
    const bool sends = replicas_[replica].member();
    pending->add(HandOver(world_, key(MessageKey::Kind::latents, batch, 0),
                          sends ? Tensor::of({2 * number(batch)}, {1}) : Tensor(),
                          {Layout::replicated({1}, from.count), Layout::replicated({1}, to.count),
                           from.first, to.first},
                          DType::float32),
                 [this, batch, decoder](const Tensor& latents) {
                   if (!decoders_[decoder].member()) return;
                   EXPECT_EQ(latents.span<float>()[0], 2 * number(batch));
                 });
    return pending;
  }

  void decode(std::size_t batch, std::size_t decoder,
              std::unique_ptr<PendingHandOver> latents) override {
    latents->finish();
    if (!decoders_[decoder].member()) return;
    EXPECT_EQ(entered_, Stage::decode);
    (void)happens(Stage::decode, batch);
    if (decoders_[decoder].rank() != 0) return;
    decoded.push_back(batch);
    failed_when_decoded[batch] = failed_[batch];
  }

  void release_embeddings(std::size_t batch) override {
    waiting_ -= embeddings_.contains(batch) ? embedding_bytes(batch) : 0;
    embeddings_.erase(batch);
  }
  void release(std::size_t batch) override {
    release_embeddings(batch);
    text_of_.erase(batch);
  }

 private:
  class Pending final : public PendingHandOver {
   public:
    void add(HandOver hand_over, std::function<void(const Tensor&)> receive) {
      all_.emplace_back(std::move(hand_over), std::move(receive));
    }
    void finish() override {
      for (auto& [hand_over, receive] : all_) receive(hand_over.finish());
    }

   private:
    std::vector<std::pair<HandOver, std::function<void(const Tensor&)>>> all_;
  };

  static float number(std::size_t batch) { return static_cast<float>(batch) + 10; }
  MessageKey key(MessageKey::Kind kind, std::size_t batch, std::size_t clip) const {
    return {kind, static_cast<std::int32_t>(batch * job_.clips + clip),
            static_cast<std::int32_t>(batch)};
  }

  // A call of a stage: a delay, and what the job has planned for it. → whether this rank is to
  // stop.
  bool happens(Stage stage, std::size_t batch) {
    if (job_.seed > 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(delays_() % 1000));
    }
    const int call = calls++;
    if (world_.rank() == job_.throwing_rank && job_.throws_in == stage) {
      fail(Status::data, "a planned failure in stage {}", static_cast<int>(stage));
    }
    if (world_.rank() == job_.stopping_rank && call == job_.stops_at) stop::request(1);
    if (job_.fails_in == stage && batch == job_.failing_batch) failed_[batch][0] = true;
    return stop::requested();
  }

  // Collective over the world.
  void set_roles(const Roles& roles) {
    replica_ranges_ = roles.denoise;
    decoder_ranges_ = roles.decode;
    replicas_.clear();
    decoders_.clear();
    for (const RankRange& range : roles.denoise) {
      replicas_.push_back(world_.range(range.first, range.count));
    }
    for (const RankRange& range : roles.decode) {
      decoders_.push_back(world_.range(range.first, range.count));
    }
  }

  comm::Group world_, text_;
  ToyJob job_;
  int embeddings_rank_;
  std::mt19937 delays_;
  Roles tail_;
  std::vector<comm::Group> replicas_, decoders_;
  std::vector<RankRange> replica_ranges_, decoder_ranges_;
  std::vector<std::vector<bool>> failed_;
  std::optional<Stage> entered_;
  bool inputs_left_ = false;
  std::map<std::size_t, Tensor> embeddings_, text_of_;
  std::map<std::size_t, std::size_t> inputs_;  // received, per batch
  std::int64_t waiting_ = 0;
};

}  // namespace reelmesh::pipeline
