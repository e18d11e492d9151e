package handler

import (
	"strconv"
	"strings"

	"flashsale/model"
	"flashsale/service"
)

// The reasons for refusals that package service does not name.
const (
	overSize      service.Reason = "over_size"
	otherType     service.Reason = "other_type"
	cutOff        service.Reason = "cut_off"
	emptyBody     service.Reason = "empty_body"
	notUTF8       service.Reason = "not_utf8"
	notJSON       service.Reason = "not_json"
	notAnObject   service.Reason = "not_an_object"
	unknownField  service.Reason = "unknown_field"
	repeatedField service.Reason = "repeated_field"
	missingField  service.Reason = "missing_field"
	wrongType     service.Reason = "wrong_type"
	notATime      service.Reason = "not_a_time"
	notAChoice    service.Reason = "not_a_choice"
	notACursor    service.Reason = "not_a_cursor"
	notAKey       service.Reason = "not_a_key"
	notAnID       service.Reason = "not_an_id"
	notSeconds    service.Reason = "not_seconds"
	overLimit     service.Reason = "over_limit"
	wrongLogIn    service.Reason = "wrong_log_in"
	notCSV        service.Reason = "not_csv"
	badNumber     service.Reason = "bad_number"
	badAmount     service.Reason = "bad_amount"
	badYesNo      service.Reason = "bad_yes_no"
	badMoment     service.Reason = "bad_moment"
	notAsInFirst  service.Reason = "not_as_in_first"
	notAnEvent    service.Reason = "not_an_event"
)

// reasons is the only place that has the API's texts for the reasons, in English and Chinese. {field}, {min}, {max} and {value}
// are replaced by the fields of the service.Invalid; {low} and {high} are Min and Max as amounts of the currency Value.
var reasons = map[service.Reason][2]string{
	service.OutOfRange:     {"{field} must be {min} to {max}", "{field} 必须在 {min} 到 {max} 之间"},
	service.BadText:        {"{field} must be {min} to {max} printable characters", "{field} 必须是 {min} 到 {max} 个可显示的字符"},
	service.BadLink:        {"{field} must be empty, a path or an http(s) URL of at most {max} characters", "{field} 必须为空、路径或不超过 {max} 个字符的 http(s) 网址"},
	service.BadCurrency:    {"{field} must be the code of a currency by ISO 4217, such as CNY, which {value} is not", "{field} 必须是 ISO 4217 的货币代码，例如 CNY；“{value}”不是"},
	service.OtherCurrency:  {"{field}: the payment provider does not take {value}", "{field}：支付服务商不支持 {value}"},
	service.TooFine:        {"{field} must be a multiple of {low} {value}: the payment provider takes no smaller parts", "{field} 必须是 {low} {value} 的倍数：支付服务商不接受更小的单位"},
	service.OutOfPayment:   {"{field} must be 0, or {low} to {high} {value}: the payment provider takes no other amounts", "{field} 必须是 0，或在 {low} 到 {high} {value} 之间：支付服务商不接受其他金额"},
	service.TooMuchToPay:   {"{field} must be at most {max}: more units at once cost more than the payment provider takes in {value}", "{field} 最多为 {max}：一次购买更多件的总价超过支付服务商可收取的 {value} 金额"},
	service.BadYear:        {"{field} must lie in the years {min} to {max}", "{field} 必须在 {min} 年到 {max} 年之间"},
	service.InThePast:      {"{field} must be in the future", "{field} 必须是将来的时间"},
	service.NotAfterStart:  {"{field} must be after starts_at", "{field} 必须晚于 starts_at"},
	service.BadName:        {"{field} must be {min} to {max} of A-Z a-z 0-9 . _ -", "{field} 必须由 {min} 到 {max} 个字母、数字或 . _ - 组成"},
	service.BadPassword:    {"{field} must be {min} to {max} bytes", "{field} 必须是 {min} 到 {max} 个字节"},
	service.BadVerifier:    {"{field} must be {min} to {max} of A-Z a-z 0-9 . _ ~ -", "{field} 必须由 {min} 到 {max} 个字母、数字或 . _ ~ - 组成"},
	service.OtherMode:      {"{field} has no effect in the mode {value}, so leave it out", "{field} 在 {value} 模式下不起作用，请不要填写"},
	service.WithoutList:    {"{field} has no effect in the mode {value} without waiting_list, so leave it out", "{field} 在没有 waiting_list 的 {value} 模式下不起作用，请不要填写"},
	service.BadMode:        {"{field} must be rush, line or draw", "{field} 必须是 rush、line 或 draw"},
	service.NotBeforeStart: {"{field} must be before the start", "{field} 必须早于开始时间"},
	service.OfOneSale:      {"{field} belongs to each sale of the campaign: use the id of the sale", "{field} 属于活动中的各个场次，请使用该场次的 id"},
	service.OfCampaign:     {"{field} belongs to the campaign as a whole", "{field} 属于整个活动，不能单独设置"},
	service.RepeatedName:   {"{field} must differ from that of the campaign's other sales", "{field} 在同一活动中不能重复"},
	service.BadRole:        {"{field} must be viewer, support or operator, or holds for a key", "{field} 必须是 viewer、support 或 operator，密钥还可以是 holds"},
	service.BadEndpoint:    {"{field} must be an https URL of at most {max} characters, not on a private network", "{field} 必须是不超过 {max} 个字符的 https 网址，且不在内网"},

	overSize:      {"The request's body is larger than {max} KiB.", "请求体超过 {max} KiB。"},
	otherType:     {"The body must be sent as {value}.", "请求体必须以 {value} 发送。"},
	cutOff:        {"the body did not arrive in full", "请求体没有完整到达"},
	emptyBody:     {"the body is empty", "请求体为空"},
	notUTF8:       {"the body is not valid UTF-8", "请求体不是有效的 UTF-8"},
	notJSON:       {"the body is not a single JSON value", "请求体不是单个 JSON 值"},
	notAnObject:   {"the body is not a JSON object", "请求体不是 JSON 对象"},
	unknownField:  {`unknown field "{field}"`, "未知字段“{field}”"},
	repeatedField: {`field "{field}" comes twice`, "字段“{field}”重复出现"},
	missingField:  {`field "{field}" is missing`, "缺少字段“{field}”"},
	wrongType:     {`field "{field}" has the wrong type or range: {value}`, "字段“{field}”的类型或范围不正确：{value}"},
	notATime:      {"{field} must be a time in the form of RFC 3339", "{field} 必须是 RFC 3339 格式的时间"},
	notAChoice:    {"{field} must be {value}", "{field} 必须是以下之一：{value}"},
	notACursor:    {"{field} must be a next_cursor of an earlier page", "{field} 必须是前一页的 next_cursor"},
	notAKey:       {"{field} must be at most {max} visible ASCII characters without spaces", "{field} 必须是不超过 {max} 个可见的 ASCII 字符，且不含空格"},
	notAnID:       {"{field} must be {min} to {max} of A-Z a-z 0-9 . _ : -", "{field} 必须由 {min} 到 {max} 个字母、数字或 . _ : - 组成"},
	notSeconds:    {"{field}: wait needs whole seconds", "{field}：wait 必须是整秒数"},
	overLimit:     {"{field} must be 1 to the sale's limit_per_user", "{field} 必须在 1 到本场次的 limit_per_user 之间"},
	notCSV:        {"the body is not a sheet in CSV: {value}", "请求体不是有效的 CSV 表格：{value}"},
	badNumber:     {"{field}: {value} is not a whole number, such as 1500", "{field}：{value} 不是整数，例如 1500"},
	badAmount:     {"{field}: {value} is not an amount with the digits of its currency, such as 12.50 of EUR or 1250 of JPY", "{field}：{value} 不是符合货币小数位数的金额，例如 EUR 的 12.50 或 JPY 的 1250"},
	badYesNo:      {"{field}: {value} is neither true nor false", "{field}：{value} 既不是 true 也不是 false"},
	badMoment:     {"{field}: {value} is not a time such as 2026-11-11T20:00:00+08:00", "{field}：{value} 不是时间，例如 2026-11-11T20:00:00+08:00"},
	notAsInFirst:  {"{field} must be empty or the same as in the first row", "{field} 必须为空，或与第一行相同"},
	notAnEvent:    {"{field} must be the id of an event, or the next of an earlier page", "{field} 必须是事件编号，或前一页的 next"},
	wrongLogIn:    {"The name or the password is wrong.", "用户名或密码错误。"},
}

// word returns the text that says in one language what is wrong.
func word(i *service.Invalid, language int) string {
	return strings.NewReplacer(
		"{field}", i.Field, "{value}", i.Value,
		"{min}", strconv.FormatInt(i.Min, 10), "{max}", strconv.FormatInt(i.Max, 10),
		"{low}", model.Amount(i.Min, i.Value), "{high}", model.Amount(i.Max, i.Value),
	).Replace(reasons[i.Reason][language])
}
