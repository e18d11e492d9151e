package model

// Shop is what buyers' pages show of the shop. All fields may be empty; then the pages look as the engine's own.
type Shop struct {
	Name       string `json:"name"`
	LogoURL    string `json:"logo_url"`
	Color      string `json:"color"` // #rrggbb, see Schemes
	HomeURL    string `json:"home_url"`
	TermsURL   string `json:"terms_url"`
	PrivacyURL string `json:"privacy_url"`
	ImprintURL string `json:"imprint_url"`
	SmallPrint string `json:"small_print"` // one line
}

// ShopField is a field of a Shop, with its name in the API and in the database.
type ShopField struct {
	Name  string
	Value *string
}

// Fields returns the fields of a shop in a fixed order.
func (s *Shop) Fields() []ShopField {
	links := []ShopField{{"home_url", &s.HomeURL}, {"terms_url", &s.TermsURL}, {"privacy_url", &s.PrivacyURL}, {"imprint_url", &s.ImprintURL}}
	return append([]ShopField{{"name", &s.Name}, {"logo_url", &s.LogoURL}, {"color", &s.Color}, {"small_print", &s.SmallPrint}}, links...)
}
