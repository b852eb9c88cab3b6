package cosmos

import (
	"net/netip"
	"net/url"
	"strings"
)

// domain decides which hosts are the account's, so that credentials never go to a host that a reply invented (DESIGN
// rule 8).
//
// The account acct at acct.documents.azure.com owns that host and acct-{anything}.documents.azure.com, which is how
// the service names its regions. Below a top-level domain anybody can register a name, so that acct.example owns no
// acct-west.example; a name without a dot is one of the user's own network. An account at an address, or on the loopback (a simulator), owns every port of that
// address, or of the loopback. Ports are not compared otherwise either. The hosts that the user configured are owned
// in any case.
type domain struct {
	scheme   string
	account  string // first label of the host
	parent   string // the labels after it
	address  netip.Addr
	loopback bool
	hosts    map[string]struct{} // configured, as url.URL.Host may spell them
}

func domainOf(endpoint *url.URL, others []*url.URL) *domain {
	host := strings.ToLower(endpoint.Hostname())
	d := &domain{scheme: endpoint.Scheme, loopback: isLoopback(host), hosts: map[string]struct{}{}}
	d.address, _ = netip.ParseAddr(host)
	d.account, d.parent, _ = strings.Cut(host, ".")
	for _, u := range append([]*url.URL{endpoint}, others...) {
		name := strings.ToLower(u.Host)
		d.hosts[name] = struct{}{}
		switch u.Port() {
		case "":
			d.hosts[name+":"+defaultPort(u.Scheme)] = struct{}{}
		case defaultPort(u.Scheme):
			d.hosts[strings.TrimSuffix(name, ":"+u.Port())] = struct{}{}
		}
	}
	return d
}

// owns reports whether the account's credentials may go to u.
func (d *domain) owns(u *url.URL) bool {
	return u.Scheme == d.scheme && (d.configured(u.Host) || d.ownsName(strings.ToLower(u.Hostname())))
}

func (d *domain) configured(host string) bool {
	if _, ok := d.hosts[host]; ok {
		return true // the account's own address as it was configured: what most requests carry
	}
	_, ok := d.hosts[strings.ToLower(host)]
	return ok
}

// named reports whether a host, with or without a port, is the account's by its name.
func (d *domain) named(host string) bool {
	if d.loopback || d.address.IsValid() {
		return false
	}
	name, _, _ := strings.Cut(host, ":")
	return d.ownsName(strings.ToLower(name))
}

func (d *domain) ownsName(host string) bool {
	if d.loopback {
		return isLoopback(host)
	}
	if d.address.IsValid() {
		a, err := netip.ParseAddr(host)
		return err == nil && a.Unmap() == d.address.Unmap()
	}
	label, parent, _ := strings.Cut(host, ".")
	if parent != d.parent || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return false
	}
	region, ok := strings.CutPrefix(label, d.account)
	if d.parent != "" && !strings.Contains(d.parent, ".") && region != "" {
		return false
	}
	return ok && (region == "" || len(region) > 1 && region[0] == '-')
}

func isLoopback(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}

func defaultPort(scheme string) string {
	if scheme == "http" {
		return "80"
	}
	return "443"
}

func portOf(u *url.URL) string {
	if port := u.Port(); port != "" {
		return port
	}
	return defaultPort(u.Scheme)
}
