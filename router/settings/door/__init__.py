"""How clients and operators come in, and what is written down of them."""
