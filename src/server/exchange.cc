#include "server/exchange.h"

#include <utility>

namespace pergola {

void Exchange::respond(HttpResponse response) {
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) return;
    news_.head = std::move(response);
    news_.finished = true;
  }
  if (on_news_) on_news_();
}

void Exchange::start_stream(HttpResponse head) {
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) return;
    news_.head = std::move(head);
    news_.streaming = true;
  }
  if (on_news_) on_news_();
}

void Exchange::write(std::string_view piece) {
  bool too_slow = false;
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) return;
    news_.body += piece;
    too_slow = news_.body.size() > kMostBuffered;
  }
  if (too_slow) return abort();
  if (on_news_) on_news_();
}

void Exchange::finish() {
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) return;
    news_.finished = true;
  }
  if (on_news_) on_news_();
}

void Exchange::on_abort(std::function<void()> call) {
  {
    const std::lock_guard lock(mutex_);
    if (!aborted_) {
      on_abort_ = std::move(call);
      return;
    }
  }
  call();
}

Exchange::News Exchange::take() {
  const std::lock_guard lock(mutex_);
  News news = std::exchange(news_, News{.streaming = news_.streaming, .finished = news_.finished});
  news.aborted = aborted_;
  return news;
}

void Exchange::abort() {
  std::function<void()> call;
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) return;
    aborted_ = true;
    news_.body.clear();
    call = std::move(on_abort_);
  }
  if (call) call();
  if (on_news_) on_news_();
}

}  // namespace pergola
