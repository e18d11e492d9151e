package handler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"flashsale/middleware"
	"flashsale/model"
)

// Codes of answers that are not among the model's verdicts.
const (
	internalError    model.Verdict = "internal"
	methodNotAllowed model.Verdict = "method_not_allowed"
)

// statusClientGone is the status in logs and metrics of a request that failed without an answer because its client disconnected.
const statusClientGone = 499

// The languages of the API's texts, as indexes of lists that have one text for each language.
const (
	english = iota
	chinese
)

// problem is the HTTP answer to a verdict, with its texts and its encoded bodies by language. A body ends before the request id.
type problem struct {
	status int
	texts  [2]text
	bodies [2][]byte
}

type text struct{ title, detail string }

// problems has the answer to each verdict that refuses a request, and to errors.
var problems = encoded(map[model.Verdict]row{
	model.BadRequest:           {http.StatusBadRequest, "Bad request", "The request is malformed, or a value in it is out of range.", "请求有误", "请求格式不正确，或其中的值超出范围。"},
	model.Unauthenticated:      {http.StatusUnauthorized, "Please log in", "A valid login is needed here.", "请先登录", "此操作需要有效的登录凭证。"},
	model.BadSignature:         {http.StatusUnauthorized, "Bad signature", "The signature or its timestamp is not valid.", "签名无效", "签名或其时间戳无效。"},
	model.BadPath:              {http.StatusForbidden, "Purchase path not valid", "The path was not issued to you for this sale, or it has expired. Ask for a new one.", "抢购地址无效", "该地址不是为您在本场次签发的，或已过期，请重新获取。"},
	model.Forbidden:            {http.StatusForbidden, "Not allowed", "Your account may not do this.", "无权操作", "您的账号没有此权限。"},
	model.WorkRequired:         {http.StatusForbidden, "Work required", "Entering this sale takes a proof of work. Ask for a new challenge, and send its solution.", "需要工作量证明", "登记本场次需要工作量证明，请获取新的题目并提交答案。"},
	model.NotFound:             {http.StatusNotFound, "Not found", "There is nothing here that you may see.", "未找到", "此处没有您可以查看的内容。"},
	methodNotAllowed:           {http.StatusMethodNotAllowed, "Method not allowed", "This address does not take that method; the Allow header lists those it takes.", "方法不允许", "该地址不支持此请求方法，支持的方法见 Allow 头。"},
	model.NotStarted:           {http.StatusConflict, "Not started", "The sale has not started yet.", "尚未开始", "本场次还没有开始。"},
	model.Ended:                {http.StatusConflict, "Ended", "The sale is over.", "已结束", "本场次已经结束。"},
	model.Paused:               {http.StatusConflict, "Paused", "The sale is paused for the moment.", "已暂停", "本场次暂时停售。"},
	model.LimitReached:         {http.StatusConflict, "Limit reached", "You would hold more units than one buyer may have in this sale or its campaign.", "已达限购数量", "超出了本场次或所属活动每人的限购数量。"},
	model.SoldOut:              {http.StatusConflict, "Sold out", "There are not enough units left. Units of unpaid orders may come back.", "已售罄", "剩余数量不足；未付款的订单可能会释放库存。"},
	model.NameTaken:            {http.StatusConflict, "Name taken", "Another account has this name.", "名称已被占用", "已有其他账号使用该名称。"},
	model.NotPayable:           {http.StatusConflict, "Not payable", "The order can't be paid in its present status.", "无法支付", "订单当前的状态不能支付。"},
	model.NotCancellable:       {http.StatusConflict, "Not cancellable", "The order is no longer pending, or you have cancelled too many orders of this sale.", "无法取消", "订单已不是待支付状态，或您在本场次取消的订单过多。"},
	model.NotRefundable:        {http.StatusConflict, "Not refundable", "The order can't be refunded in its present status.", "无法退款", "订单当前的状态不能退款。"},
	model.AmountMismatch:       {http.StatusConflict, "Amount mismatch", "The amount is not the amount of the payment.", "金额不符", "金额与支付单的金额不一致。"},
	model.PaymentRefused:       {http.StatusConflict, "Payment refused", "The payment provider does not take this payment. Trying again does not help; please write to the shop.", "支付被拒绝", "支付服务商不接受这笔支付，重试无效，请联系商家。"},
	model.RefundDue:            {http.StatusConflict, "Refund due", "The order can't keep this money, because it has ended or was paid before. Send the money back, and report that.", "需要退款", "订单已结束或已被支付，不能接收这笔款项，请退款并上报。"},
	model.LabRunning:           {http.StatusConflict, "Lab is running", "A comparison of the strategies is running already. Wait for it, or stop it.", "实验室正在运行", "已有策略对比正在运行，请等待其结束或将其停止。"},
	model.SaleOpen:             {http.StatusConflict, "Sale open", "A sale is open, or about to open. A comparison would slow it down.", "有场次正在销售", "有场次正在销售或即将开始，运行对比会影响其速度。"},
	model.QuotaChanged:         {http.StatusConflict, "Quota changed", "The quota isn't what you took it for. Units may have been added already; look before you add more.", "总量已变化", "当前总量与您所见的不同，可能已经追加过，请核对后再追加。"},
	model.TooMany:              {http.StatusConflict, "Too many", "There are as many of these as there may be. Remove one first.", "数量已达上限", "数量已达上限，请先删除一个。"},
	model.NoLine:               {http.StatusConflict, "No line", "This sale has no line, or it still sells to all.", "没有排队", "本场次没有排队，或仍在公开销售。"},
	model.EntriesClosed:        {http.StatusConflict, "Entries closed", "The entries are closed, and what depends on them can't be changed any more.", "登记已截止", "登记已截止，由登记决定的内容不能再更改。"},
	model.NotYourTurn:          {http.StatusConflict, "Not your turn", "You have not been called. Enter the line, or wait for your call.", "尚未叫到您", "还没有叫到您，请先登记，或等待叫号。"},
	model.CallEnded:            {http.StatusConflict, "Call ended", "You were called, and the time to buy is over.", "叫号已过期", "叫到您的购买时间已经结束。"},
	model.ReasonLost:           {http.StatusConflict, "Attempt lost", "The queued attempt was lost before it became an order. Nothing was bought; you may try again with a new Idempotency-Key.", "排队请求已丢失", "排队的请求在生成订单前丢失，没有成交，可以换一个 Idempotency-Key 重试。"},
	model.ReasonFailed:         {http.StatusConflict, "Attempt failed", "The queued attempt could not become an order. Nothing was bought.", "下单失败", "排队的请求未能生成订单，没有成交。"},
	model.TooLarge:             {http.StatusRequestEntityTooLarge, "Body too large", "The request's body is larger than this address takes.", "请求体过大", "请求体超过该地址的上限。"},
	model.UnsupportedMediaType: {http.StatusUnsupportedMediaType, "Unsupported media type", "The body must be sent as the media type that this address takes.", "媒体类型不支持", "请求体必须以该地址支持的媒体类型发送。"},
	model.IdempotencyMismatch:  {http.StatusUnprocessableEntity, "Key used before", "This Idempotency-Key was used before with another request.", "幂等键重复", "该 Idempotency-Key 已用于另一个不同的请求。"},
	model.RateLimited:          {http.StatusTooManyRequests, "Too many requests", "More requests are coming in than can be taken. Try again shortly.", "请求过多", "当前请求过多，请稍后再试。"},
	model.TooFrequent:          {http.StatusTooManyRequests, "Too frequent", "You are asking too often. Try again shortly.", "操作过于频繁", "您的请求过于频繁，请稍后再试。"},
	internalError:              {http.StatusInternalServerError, "Internal error", "Something went wrong on our side. The request id helps us to find it.", "内部错误", "服务器出现问题，凭请求编号可以查找原因。"},
	model.Unavailable:          {http.StatusServiceUnavailable, "Unavailable", "The request can't be taken at the moment. Try again shortly.", "暂时不可用", "暂时无法受理请求，请稍后再试。"},
})

// row is a problem as the table of problems has it.
type row struct {
	status                                     int
	title, detail, chineseTitle, chineseDetail string
}

func encoded(rows map[model.Verdict]row) map[model.Verdict]problem {
	all := map[model.Verdict]problem{}
	for verdict, r := range rows {
		p := problem{status: r.status, texts: [2]text{english: {r.title, r.detail}, chinese: {r.chineseTitle, r.chineseDetail}}}
		for language, words := range p.texts {
			p.bodies[language] = encodeProblem(verdict, r.status, words, "", nil)
		}
		all[verdict] = p
	}
	return all
}

// Problems answers requests that ended in a refusal or an error, unless an answer has begun, and logs the errors. Pages.missing
// answers refusals too, with an HTML page.
//
// An error is answered as 503 unavailable if it wraps model.ErrUnavailable or was caused by a deadline or a shutdown, otherwise
// as 500 internal, never with its text. If it only means that the client has disconnected (see clientLeft), it is neither
// answered nor logged.
func Problems(log *slog.Logger) gin.HandlerFunc {
	return func(c *gin.Context) {
		c.Next()
		refusal, refused := middleware.RefusalOf(c)
		err := middleware.FailureOf(c)
		if err == nil && !refused {
			return
		}
		if _, known := problems[refusal.Verdict]; refused && !known {
			err = fmt.Errorf("refused with %q, which no problem describes", refusal.Verdict)
		}
		switch {
		case err != nil && clientLeft(c, err):
			c.Status(statusClientGone)
			return
		case err != nil:
			refusal = middleware.Refusal{Verdict: logFailure(c, log, err)}
		}
		if !c.Writer.Written() {
			writeProblem(c, refusal)
		}
	}
}

// clientLeft reports whether err only means that the client has disconnected: the work was cancelled with the request, or an
// answer that had begun could not be sent to its end.
func clientLeft(c *gin.Context, err error) bool {
	return errors.Is(c.Request.Context().Err(), context.Canceled) && (errors.Is(err, context.Canceled) || c.Writer.Written())
}

// logFailure logs err and returns the verdict to answer with.
func logFailure(c *gin.Context, log *slog.Logger, err error) model.Verdict {
	level, verdict := slog.LevelError, internalError
	// If the context was cancelled while the client is still connected, a shutdown cancelled it.
	if errors.Is(err, model.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		level, verdict = slog.LevelWarn, model.Unavailable
	}
	log.LogAttrs(c.Request.Context(), level, "request failed",
		slog.String("route", c.FullPath()), slog.String("request_id", middleware.RequestIDOf(c)), slog.Any("error", err))
	return verdict
}

// All requests share these values of headers, and nothing writes into them: Set replaces a slice, and Add copies a slice that is
// full, as these are.
var (
	languages   = [2][]string{{"en"}, {"zh"}}
	byLanguage  = []string{"Accept-Language"}
	noStore     = []string{"no-store"}
	bearer      = []string{"Bearer"}
	problemType = []string{"application/problem+json"}
)

// behindID is the end of a problem's JSON, after the request id. A request id needs no escaping.
const behindID = `"}`

// encodeProblem returns a problem's JSON up to the request id. The name of the field is empty if no field is wrong, and the turn
// is nil if the problem is not about a line.
func encodeProblem(verdict model.Verdict, status int, words text, field string, turn *middleware.Turn) []byte {
	body, _ := json.Marshal(struct { // strings and an int always encode
		Type   string        `json:"type"`
		Title  string        `json:"title"`
		Status int           `json:"status"`
		Detail string        `json:"detail"`
		Code   model.Verdict `json:"code"`
		Field  string        `json:"field,omitempty"`
		*middleware.Turn
		RequestID string `json:"request_id"`
	}{"/problems/" + string(verdict), words.title, status, words.detail, verdict, field, turn, ""})
	return bytes.TrimSuffix(body, []byte(behindID))
}

func writeProblem(c *gin.Context, r middleware.Refusal) {
	language, p := languageOf(middleware.HeaderOf(c, "Accept-Language")), problems[r.Verdict]
	body := p.bodies[language]
	if words, field := p.texts[language], ""; r.Invalid != nil || r.Turn != nil {
		if r.Invalid != nil {
			words.detail, field = word(r.Invalid, language), r.Invalid.Field
		}
		body = encodeProblem(r.Verdict, p.status, words, field, r.Turn)
	}
	header := c.Writer.Header()
	header["Content-Language"] = languages[language]
	header["Cache-Control"] = noStore // the handler may have set another before it failed
	if len(header["Vary"]) == 0 {
		header["Vary"] = byLanguage
	} else {
		header.Add("Vary", "Accept-Language")
	}
	if len(header["Content-Type"]) == 0 {
		header["Content-Type"] = problemType
	}
	switch p.status {
	case http.StatusUnauthorized:
		header["Www-Authenticate"] = bearer
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		header.Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(r.RetryAfter.Seconds())))))
	}
	c.Status(p.status)
	_, _ = c.Writer.Write(body) // fails only if the client has disconnected or is too slow
	_, _ = c.Writer.WriteString(middleware.RequestIDOf(c))
	_, _ = c.Writer.WriteString(behindID)
}

// languageOf returns Chinese if an Accept-Language header ranks Chinese, of any region, above English and above the wildcard,
// which stands for the default, English. Of equal weights, the first wins.
func languageOf(header string) (language int) {
	if header == "" {
		return english
	}
	best := 0.0
	for choice := range strings.SplitSeq(strings.ToLower(header), ",") {
		tag, weight, weighted := strings.Cut(choice, ";")
		name, _, _ := strings.Cut(strings.TrimSpace(tag), "-")
		if name != "zh" && name != "en" && name != "*" {
			continue
		}
		q := 1.0
		if weighted {
			value, _ := strings.CutPrefix(strings.TrimSpace(weight), "q=")
			q, _ = strconv.ParseFloat(value, 64) // 0 if unreadable, which is never chosen
		}
		if q > best {
			best, language = q, english
			if name == "zh" {
				language = chinese
			}
		}
	}
	return language
}
