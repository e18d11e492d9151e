package fault

// attackRows are attacks by the content of requests: bodies, texts, tokens, paths, ids; and by buyers who never pay.
var attackRows = []row{
	{19, "malformed, oversized, deeply nested, duplicate-key JSON", "400 or 413, flat memory", badBodies},
	{20, "injection strings, NUL, emoji, case and accent variants in every text and id", "literal or refused; Redis and the database agree", strangeTexts},
	{21, "forged tokens: none, other algorithm, no exp, other key, a million dots", "401, flat memory", forgedTokens},
	{22, "path tokens forged, of another user or sale, expired", "403", forgedPaths},
	{23, "order and sale ids walked", "the same 404, in the same time, without a look-up", walkedIDs},
	{25, "bots that hold everything and never pay", "units return and are sold", botsThatNeverPay},
}
